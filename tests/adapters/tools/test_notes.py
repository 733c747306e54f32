"""A deletion that is run again after a crash: the same answer, and nothing is deleted that was not there before."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gateway.adapters.tools.notes import FORGETTING_EVERY_SECONDS, KEPT_SECONDS, Notes
from gateway.adapters.tools.workspace import Workspace


class Context:
    cancelled = False

    def __init__(self, key: str) -> None:
        self.idempotency_key = key

    def progress(self, label: str) -> None:
        raise NotImplementedError


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "access.log").write_text("GET /health 200\n")
    return folder


def delete(folder: Path, notes: Notes, key: str) -> str:
    return Workspace(folder, notes=notes).tools()["delete_file"].run({"path": "access.log"}, Context(key))


def test_run_again_with_its_key_a_deletion_answers_as_it_did(folder: Path, notes: Notes) -> None:
    assert delete(folder, notes, "r1:1:0") == "Deleted access.log."
    assert delete(folder, notes, "r1:1:0") == "Deleted access.log."
    assert delete(folder, notes, "r1:2:0") == "access.log was already gone."
    assert delete(folder, notes, "r1:2:0") == "access.log was already gone."


def test_one_that_died_before_it_deleted_deletes(folder: Path, notes: Notes) -> None:
    file = os.lstat(folder / "access.log")
    notes.first("r1:1:0", f"{file.st_dev}:{file.st_ino}:{file.st_mtime_ns}")

    assert delete(folder, notes, "r1:1:0") == "Deleted access.log."
    assert not (folder / "access.log").exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_a_file_that_took_the_place_since_is_left_alone(folder: Path, notes: Notes, was_there: bool) -> None:
    if not was_there:
        (folder / "access.log").unlink()
    answer = delete(folder, notes, "r1:1:0")
    (folder / "access.log").write_text("another one")

    assert delete(folder, notes, "r1:1:0") == answer
    assert (folder / "access.log").read_text() == "another one"


def test_old_notes_are_forgotten(tmp_path: Path, notes: Notes) -> None:
    Notes(tmp_path / "notes").first("old", "text")
    grow_old(tmp_path)

    notes.first("new", "text")

    assert notes.first("new", "other") == ("text", True)
    assert notes.first("old", "other") == ("other", False)


def test_old_notes_are_looked_for_once_an_hour(tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.first("old", "text")
    grow_old(tmp_path)
    notes.first("new", "text")
    assert len(list((tmp_path / "notes").iterdir())) == 2

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + FORGETTING_EVERY_SECONDS)
    notes.first("newer", "text")

    assert notes.first("old", "other") == ("other", False)


def grow_old(tmp_path: Path) -> None:
    """All notes that there are."""
    then = time.time() - KEPT_SECONDS - 60
    for note in (tmp_path / "notes").iterdir():
        os.utime(note, (then, then))
