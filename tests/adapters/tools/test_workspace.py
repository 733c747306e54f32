"""The four tools: their words to the token, and no way out of the folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.adapters.tools.folder import ENTRIES_MAX
from gateway.adapters.tools.workspace import Workspace
from gateway.core.errors import ToolFailed
from scripted.tokens import prompt_tokens

ORIGINAL = Path(__file__).parents[3] / "configs" / "workspace"
SECRET = "the secret of the outside"


class Context:
    idempotency_key = "r1:1:0"
    cancelled = False

    def __init__(self) -> None:
        self.labels: list[str] = []

    def progress(self, label: str) -> None:
        self.labels.append(label)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fresh copy of the three files, beside a file that must stay out of reach."""
    (tmp_path / "secret.txt").write_text(SECRET)
    return Path(shutil.copytree(ORIGINAL, tmp_path / "workspace"))


def use(folder: Path, name: str, path: str | None = None, **limits: Any) -> str:
    tool = Workspace(folder, **limits).tools()[name]
    return tool.run({} if path is None else {"path": path}, Context())


def failure(folder: Path, name: str, path: str, **limits: Any) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        use(folder, name, path, **limits)
    assert str(failed.value)
    return failed.value


def answer_of(folder: Path, name: str, path: str) -> str:
    """What comes back, be it the answer or the words of a failure."""
    try:
        return use(folder, name, path)
    except ToolFailed as failed:
        return str(failed)


# --- as published ---------------------------------------------------------------------------------------------------


def test_the_model_is_shown_the_published_definitions_and_the_first_prompt_costs_204_tokens(folder: Path) -> None:
    specs = [tool.spec for tool in Workspace(folder).tools().values()]
    shown = [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in specs
    ]
    messages = [
        {"role": "system", "content": "You answer questions about the files in one directory. Use the tools."},
        {"role": "user", "content": "Which file mentions a timeout?"},
    ]

    assert [spec.name for spec in specs] == ["list_files", "read_file", "delete_file", "scan_archive"]
    assert msgspec.json.encode(shown[0]["function"]["parameters"]) == b'{"type":"object","properties":{}}'
    assert prompt_tokens(messages, shown) == 204


def test_only_deleting_needs_an_approval_and_only_the_quick_reads_may_be_remembered(folder: Path) -> None:
    flags = {
        name: (tool.spec.read_only, tool.spec.cacheable, tool.spec.needs_approval, tool.spec.idempotent)
        for name, tool in Workspace(folder).tools().items()
    }

    assert flags == {
        "list_files": (True, True, False, False),
        "read_file": (True, True, False, False),
        "delete_file": (False, False, True, True),
        "scan_archive": (True, False, False, False),
    }


def test_listing_reading_and_deleting_answer_as_published(folder: Path) -> None:
    assert use(folder, "list_files") == '["access.log","errors.log","notes.txt"]'
    assert use(folder, "read_file", "errors.log") == "ERROR timeout: worker 7 timed out after 30000 ms\n"
    assert use(folder, "delete_file", "access.log") == "Deleted access.log."
    assert use(folder, "delete_file", "access.log") == "access.log was already gone."
    assert use(folder, "list_files") == '["errors.log","notes.txt"]'


def test_a_missing_file_is_said_with_what_to_do_next(folder: Path) -> None:
    failed = failure(folder, "read_file", "timeout.log")

    assert str(failed) == "no such file: timeout.log. Call list_files to see what exists."
    assert not failed.permanent


@pytest.mark.parametrize("tool", ["read_file", "delete_file"])
@pytest.mark.parametrize("path", ["/etc/shadow", "//etc/shadow", "/", "/proc/self/environ"])
def test_an_absolute_path_is_denied_for_good(folder: Path, tool: str, path: str) -> None:
    failed = failure(folder, tool, path)

    assert str(failed) == f"permission denied: {path}"
    assert failed.permanent


async def test_a_scan_reports_six_steps_and_how_far_it_came(folder: Path) -> None:
    ctx = Context()
    scan = Workspace(folder, scan_step_seconds=0.001).tools()["scan_archive"]

    assert await scan.run({}, ctx) == "scanned 1200 of 1200 files"
    assert ctx.labels == [f"scanned {n} of 1200 files" for n in (200, 400, 600, 800, 1000, 1200)]


async def test_a_scan_stops_at_once_when_it_is_cancelled(folder: Path) -> None:
    ctx = Context()
    scan = asyncio.ensure_future(Workspace(folder, scan_step_seconds=60).tools()["scan_archive"].run({}, ctx))
    await asyncio.sleep(0)
    scan.cancel()

    with pytest.raises(asyncio.CancelledError):
        await scan
    assert ctx.labels == []


# --- ways out of the folder -----------------------------------------------------------------------------------------

CORRECTABLE = {
    "": "the path is empty",
    "..": "leads out of the directory",
    "../secret.txt": "leads out of the directory",
    "a/../../secret.txt": "leads out of the directory",
    "./../workspace/../secret.txt": "leads out of the directory",
    "errors.log\0.txt": "characters that no file name has",
    "\udcff": "characters that no file name has",
    ".": "is a directory",
    "inner": "is a directory",
    "inner/": "is a directory",
    "inner/file.txt": "is not in the directory itself",
    "errors.log/x": "is not in the directory itself",
    "out.txt": "is a symbolic link",
    "outside": "is a symbolic link",
    "outside/secret.txt": "is not in the directory itself",
    "inside.txt": "is a symbolic link",
    "nowhere.txt": "is a symbolic link",
    "loop": "is a symbolic link",
    "pipe": "is a pipe",
    "socket": "is a socket",
    "x" * 256: "too long",
    "é" * 128: "too long",
    "../" * 2000: "too long",
}


@pytest.fixture
def trapped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "inner").mkdir()
    (folder / "inner" / "file.txt").write_text("inside")
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "outside").symlink_to("..")
    (folder / "inside.txt").symlink_to("notes.txt")
    (folder / "nowhere.txt").symlink_to("/nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    return folder


def tree(folder: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("tool", ["read_file", "delete_file"])
@pytest.mark.parametrize(("path", "words"), CORRECTABLE.items(), ids=lambda value: ascii(value)[:30])
def test_every_way_out_is_refused_in_words_that_the_model_can_act_on(
    trapped: Path, tool: str, path: str, words: str
) -> None:
    before = tree(trapped.parent)

    failed = failure(trapped, tool, path)

    assert words in str(failed)
    assert SECRET not in str(failed)
    assert not failed.permanent
    assert len(str(failed)) < 5000
    assert tree(trapped.parent) == before


def test_only_what_can_be_read_is_listed(trapped: Path) -> None:
    (trapped / ".hidden").write_text("seen")
    (trapped / "Zürich.txt").write_text("seen")
    Path(os.fsdecode(os.fsencode(trapped) + b"/\xff.txt")).write_text("its name is not UTF-8")

    names = msgspec.json.decode(use(trapped, "list_files"), type=list[str])

    assert names == [".hidden", "Zürich.txt", "access.log", "errors.log", "notes.txt"]
    assert all(use(trapped, "read_file", name) for name in names)


def test_a_path_may_say_that_it_is_here(folder: Path) -> None:
    assert use(folder, "read_file", "./notes.txt") == use(folder, "read_file", "notes.txt")
    assert use(folder, "read_file", "x/../notes.txt") == use(folder, "read_file", "notes.txt")


def test_a_list_is_cut_in_words(folder: Path) -> None:
    assert use(folder, "list_files", files_max=2) == '["access.log","errors.log"] [cut: 1 files more]'


def test_a_list_of_a_large_folder_looks_at_so_many_entries_and_says_so(folder: Path) -> None:
    assert use(folder, "list_files", entries_max=3) == '["access.log","errors.log","notes.txt"]'

    names, _, words = use(folder, "list_files", entries_max=2).partition(" [")
    assert set(msgspec.json.decode(names)) < {"access.log", "errors.log", "notes.txt"}
    assert words == "cut: 0 files more, and all that is behind the first 2 entries]"

    names, _, words = use(folder, "list_files", entries_max=2, files_max=1).partition(" [")
    assert len(msgspec.json.decode(names)) == 1
    assert words == "cut: 1 files more, and all that is behind the first 2 entries]"


def test_a_list_ends_early_in_a_folder_of_a_hundred_thousand_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    class Entry:
        name = "file.txt"

        def is_file(self, *, follow_symlinks: bool) -> bool:
            nonlocal looked_at
            looked_at += 1
            return True

    monkeypatch.setattr(os, "scandir", lambda _: nullcontext(Entry() for _ in range(100_000)))

    listed = use(folder, "list_files")

    assert looked_at == ENTRIES_MAX
    assert listed.endswith("[cut: 4000 files more, and all that is behind the first 5000 entries]")


@pytest.mark.parametrize("size", [100, 101, 5000])
def test_a_file_is_read_up_to_the_limit_and_refused_beyond(folder: Path, size: int) -> None:
    (folder / "big.txt").write_text("x" * size)
    if size <= 100:
        assert use(folder, "read_file", "big.txt", file_bytes_max=100) == "x" * size
        return

    failed = failure(folder, "read_file", "big.txt", file_bytes_max=100)

    assert str(failed) == f"big.txt is too large: {size} bytes, and at most 100 can be read."
    assert not failed.permanent


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\xff", b"text\0text", b"\xc3"])
def test_a_binary_file_is_refused_in_words(folder: Path, content: bytes) -> None:
    (folder / "image.png").write_bytes(content)

    failed = failure(folder, "read_file", "image.png")

    assert str(failed) == "image.png is binary: only text in UTF-8 can be read."
    assert not failed.permanent


def test_an_empty_file_is_an_empty_text(folder: Path) -> None:
    (folder / "empty.txt").touch()

    assert use(folder, "read_file", "empty.txt") == ""


def test_a_folder_that_is_gone_is_said_for_good(folder: Path) -> None:
    shutil.rmtree(folder)

    with pytest.raises(ToolFailed, match="the directory of the files does not exist") as failed:
        use(folder, "list_files")
    assert failed.value.permanent
    assert failure(folder, "delete_file", "notes.txt").permanent


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything, so it steps down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that anybody may enter: those of tmp_path belong to one user."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("tool", ["read_file", "delete_file"])
def test_what_the_system_forbids_is_denied_for_good(public_folder: Path, tool: str) -> None:
    (public_folder / "private.txt").write_text("mine")
    (public_folder / "private.txt").chmod(0)
    public_folder.chmod(0o555)

    with without_privileges():
        failed = failure(public_folder, tool, "private.txt")

    assert str(failed) == "permission denied: private.txt"
    assert failed.permanent
    assert (public_folder / "private.txt").exists()


SWAPS = """
import sys
from pathlib import Path
new, target, secret = map(Path, sys.argv[1:])
while True:
    new.symlink_to(secret)
    new.replace(target)
    new.write_text("inside")
    new.replace(target)
"""


def test_a_file_swapped_for_a_link_while_it_is_read_or_deleted_never_leads_out(folder: Path) -> None:
    """Another process swaps the name as fast as it can; whoever reads sees the file or words."""
    target, secret = folder / "notes.txt", folder.parent / "secret.txt"
    seen = set[str]()
    with subprocess.Popen([sys.executable, "-c", SWAPS, folder / "new", target, secret]) as swapping:
        try:
            until = time.monotonic() + 5
            while time.monotonic() < until and not {"inside", "Deleted notes.txt."} <= seen:
                seen |= {
                    answer_of(folder, tool, "notes.txt") for _ in range(500) for tool in ("read_file", "delete_file")
                }
        finally:
            swapping.kill()

    assert secret.read_text() == SECRET
    assert not any(SECRET in each for each in seen)
    assert "inside" in seen


SEGMENTS = st.one_of(
    st.sampled_from(
        ["..", ".", "", "secret.txt", "workspace", "inner", "outside", "out.txt", "pipe", "file.txt", "notes.txt", "~"]
    ),
    st.text(max_size=8),
)
PATHS = st.one_of(st.lists(SEGMENTS, max_size=7).map("/".join), st.text(max_size=300))


@settings(max_examples=300)
@given(path=PATHS, tool=st.sampled_from(["read_file", "delete_file"]))
def test_no_path_reads_or_deletes_anything_outside(trapped: Path, path: str, tool: str) -> None:
    (trapped / "notes.txt").write_text("may be deleted")
    before = tree(trapped.parent)

    answer = answer_of(trapped, tool, path)

    after = tree(trapped.parent)
    gone = before.keys() - after.keys()
    assert SECRET not in answer
    assert gone <= {f"workspace/{name}" for name in ("access.log", "errors.log", "notes.txt")}
    assert len(gone) <= (tool == "delete_file")
    assert after == {name: text for name, text in before.items() if name not in gone}
