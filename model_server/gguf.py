"""Reads the header of a GGUF file, enough to know what the weights are and how much memory they want, without loading.

Knows the format, not llama.cpp. The layout: magic, version, two counts, then key-value pairs, then what is not read.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from model_server.errors import LoadFailed
from model_server.prompt import Template

Value = int | float | bool | str

MAGIC = b"GGUF"
STRING_BYTES_MAX = 16 * 1024 * 1024
PAIRS_MAX = 10_000
ITEMS_MAX = 10_000_000

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_QUANTISATIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 14: "Q4_K_S", 15: "Q4_K_M"}
_QUANTISATIONS |= {16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16"}


class Header(Struct, frozen=True):
    """What is used of the header."""

    quantisation: str
    context_trained: int
    cell_bytes: int
    template: Template


class _Truncated(Exception):
    pass


def read_header(path: Path) -> Header:
    """Raises LoadFailed, in a sentence, for what is not a model that this server can host."""
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise LoadFailed(f"{path} is not a GGUF file.")
            return _header(path, _pairs(file))
    except OSError as error:
        raise LoadFailed(f"{path} cannot be read: {error.strerror}.") from None
    except (_Truncated, struct.error, UnicodeDecodeError):
        raise LoadFailed(f"{path} is cut short or damaged: its header cannot be read. Fetch it again.") from None


def _header(path: Path, pairs: dict[str, Value]) -> Header:
    architecture = str(pairs.get("general.architecture", ""))

    def number(key: str) -> int:
        if not isinstance(value := pairs.get(f"{architecture}.{key}"), int):
            raise LoadFailed(f"{path} holds no model that can chat: {architecture}.{key} is missing.")
        return value

    return Header(
        quantisation=_QUANTISATIONS.get(int(pairs.get("general.file_type", -1)), "unknown"),
        context_trained=number("context_length"),
        cell_bytes=_cell_bytes(number, pairs.get(f"{architecture}.attention.key_length")),
        template=_template(path, architecture, str(pairs.get("tokenizer.chat_template", ""))),
    )


def _cell_bytes(number: Callable[[str], int], key_length: Value | None) -> int:
    """Keys and values of one token in all layers, two bytes a number."""
    head = int(key_length) if key_length else number("embedding_length") // number("attention.head_count")
    return number("block_count") * number("attention.head_count_kv") * head * 2 * 2


def _template(path: Path, architecture: str, chat_template: str) -> Template:
    """Which of the two templates of prompt.py fits. The file's own is read for that, and not used."""
    if "<|im_start|>" not in chat_template:
        raise LoadFailed(
            f"{path} is a {architecture or 'nameless'} model whose prompt format this server does not know."
        )
    return "qwen2.5" if architecture == "qwen2" and "<tool_call>" in chat_template else "chatml"


# ── the format ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pairs(file: BinaryIO) -> dict[str, Value]:
    """All key-value pairs but arrays, which are the vocabulary and are skipped."""
    file.seek(struct.calcsize("<IQ"), 1)  # version, number of tensors
    pairs: dict[str, Value] = {}
    for _ in range(_bounded(_scalar(file, "Q"), PAIRS_MAX)):
        key, kind = _string(file), _scalar(file, "I")
        if (value := _value(file, int(kind))) is not None:
            pairs[key] = value
    return pairs


def _value(file: BinaryIO, kind: int) -> Value | None:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    if kind not in _SCALARS:
        raise _Truncated
    return _scalar(file, _SCALARS[kind])


def _skip_array(file: BinaryIO) -> None:
    kind, count = int(_scalar(file, "I")), _bounded(_scalar(file, "Q"), ITEMS_MAX)
    if kind in _SCALARS:
        file.seek(count * struct.calcsize(_SCALARS[kind]), 1)
    elif kind == _STRING:
        for _ in range(count):
            file.seek(_bounded(_scalar(file, "Q"), STRING_BYTES_MAX), 1)
    else:
        raise _Truncated


def _string(file: BinaryIO) -> str:
    length = _bounded(_scalar(file, "Q"), STRING_BYTES_MAX)
    raw = file.read(length)
    if len(raw) < length:
        raise _Truncated
    return raw.decode("utf-8", "replace")


def _scalar(file: BinaryIO, format_: str) -> int | float | bool:
    return struct.unpack("<" + format_, file.read(struct.calcsize("<" + format_)))[0]


def _bounded(value: float, most: int) -> int:
    if not 0 <= value <= most:
        raise _Truncated
    return int(value)
