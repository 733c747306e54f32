"""llama.cpp through its low-level API. The only module that imports llama_cpp.

One thread owns an engine, except for `tokenise`, `piece` and `is_end`, which only read the vocabulary. It knows tokens,
cells and logits; it does not know what a request, a message or a tool is.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from model_server.cells import Copy, Keep, Operation
from model_server.errors import DecodeFailed, LoadFailed
from model_server.prompt import Control, Segment
from model_server.sampling import Ids, Logits
from model_server.scheduler import Share

_ERROR_LEVEL = 3
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Options(Struct, frozen=True, kw_only=True):
    context: int
    lines: int  # sequences, working and kept
    batch_tokens: int
    threads: int
    flash_attention: bool = False
    repack: bool = True  # weights in the order that this processor likes best


class Engine:
    def __init__(self, path: Path, options: Options, on_progress: Callable[[float], None] = lambda _: None) -> None:
        """Loads the weights. Raises LoadFailed with llama.cpp's own words."""
        self._model = _load_model(path, options.repack, on_progress)
        self._context = _new_context(self._model, options)
        self._vocabulary: Any = llama.llama_model_get_vocab(self._model)
        self._memory: Any = llama.llama_get_memory(self._context)
        self._batch = _Batch(options.batch_tokens)
        self._vocabulary_tokens = llama.llama_vocab_n_tokens(self._vocabulary)
        self._pieces: dict[int, bytes] = {}

    def close(self) -> None:
        self._batch.close()
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    # ── the vocabulary ──

    def tokenise(self, segment: Segment) -> list[int]:
        return self.tokenise_text(segment.text, parse_special=isinstance(segment, Control))

    def tokenise_text(self, text: str, *, parse_special: bool = False) -> list[int]:
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        tokens = (llama.llama_token * room)()
        count = llama.llama_tokenize(self._vocabulary, raw, len(raw), tokens, room, False, parse_special)
        return tokens[: max(0, count)]

    def piece(self, token: int) -> bytes:
        """The bytes of a token, which need not be whole characters. Control tokens have none."""
        if token not in self._pieces:
            buffer = ctypes.create_string_buffer(512)
            length = llama.llama_token_to_piece(self._vocabulary, token, buffer, len(buffer), 0, False)  # pyright: ignore[reportArgumentType]
            self._pieces[token] = buffer.raw[: max(0, length)]
        return self._pieces[token]

    def is_end(self, token: int) -> bool:
        return llama.llama_vocab_is_eog(self._vocabulary, token)

    # ── computing ──

    def apply(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case Copy(source, target, length):
                    llama.llama_memory_seq_cp(self._memory, source, target, 0, length)
                case Keep(sequence, length):
                    llama.llama_memory_seq_rm(self._memory, sequence, length, -1)

    def held(self, sequence: int) -> int:
        """How many positions llama.cpp holds for a sequence, to compare with the scheduler's account."""
        return llama.llama_memory_seq_pos_max(self._memory, sequence) + 1

    def decode(self, shares: Sequence[Share]) -> int:
        """0 if it went well, else what llama_decode returned."""
        self._batch.fill(shares)
        return llama.llama_decode(self._context, self._batch.raw)

    def logits(self, row: int) -> Logits:
        """Of one row of the last batch: a view, good until the next one."""
        pointer: Any = llama.llama_get_logits_ith(self._context, row)
        if not pointer:
            raise DecodeFailed("The model gave no logits for this reply.")
        return np.ctypeslib.as_array(pointer, (self._vocabulary_tokens,))

    def grammar(self, text: str) -> "Grammar":
        return Grammar(self._vocabulary, text)


class Grammar:
    """llama.cpp's grammar, as a state that tokens are checked against."""

    def __init__(self, vocabulary: Any, text: str) -> None:
        self._sampler: Any = llama.llama_sampler_init_grammar(vocabulary, text.encode(), b"root")
        if not self._sampler:
            raise DecodeFailed(
                "The grammar of this reply was refused: is the schema recursive from its first character?"
            )

    def allowed(self, ids: Ids) -> NDArray[np.bool_]:
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"] = ids
        data = candidates.ctypes.data_as(llama.llama_token_data_p)
        array = llama.llama_token_data_array(data=data, size=len(ids), selected=-1, sorted=False)
        llama.llama_sampler_apply(self._sampler, ctypes.byref(array))  # pyright: ignore[reportArgumentType]
        return candidates["logit"] == 0

    def accept(self, token: int) -> None:
        """The token must be allowed: llama.cpp ends the process otherwise."""
        llama.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        if self._sampler:
            llama.llama_sampler_free(self._sampler)
            self._sampler = None


class _Batch:
    """llama.cpp's batch, filled through views on its arrays."""

    def __init__(self, size: int) -> None:
        self.raw = llama.llama_batch_init(size, 0, 1)
        self._size = size
        as_array = np.ctypeslib.as_array
        self._tokens = as_array(self.raw.token, (size,))
        self._positions = as_array(self.raw.pos, (size,))
        self._outputs = as_array(self.raw.logits, (size,))
        as_array(self.raw.n_seq_id, (size,))[:] = 1

    def fill(self, shares: Sequence[Share]) -> None:
        row = 0
        self._outputs[:] = 0
        for share in shares:
            end = row + len(share.tokens)
            self._tokens[row:end] = share.tokens
            self._positions[row:end] = range(share.position, share.position + len(share.tokens))
            for index in range(row, end):
                self.raw.seq_id[index][0] = share.sequence
            self._outputs[end - 1] = share.whole
            row = end
        self.raw.n_tokens = row

    def close(self) -> None:
        llama.llama_batch_free(self.raw)


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def uses_matrix_unit() -> bool:
    """Whether llama.cpp was built to use AMX and finds it here."""
    return b"AMX_INT8 = 1" in llama.llama_print_system_info()


def _load_model(path: Path, repack: bool, on_progress: Callable[[float], None]) -> Any:
    params = llama.llama_model_default_params()
    callback = llama.llama_progress_callback(lambda progress, _: on_progress(progress) is None)
    params.progress_callback = callback  # pyright: ignore[reportAttributeAccessIssue]
    params.n_gpu_layers = 0
    params.use_extra_bufts = repack
    llama.llama_backend_init()
    with _listening() as errors:
        model = llama.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise LoadFailed(f"{path} cannot be loaded: {_words(errors)}.")
    return model


def _new_context(model: Any, options: Options) -> Any:
    params = llama.llama_context_default_params()
    params.n_ctx = options.context
    params.n_batch = params.n_ubatch = options.batch_tokens
    params.n_seq_max = options.lines
    params.n_outputs_max = options.lines  # the least that is taken; the default reserves logits for a whole batch
    params.n_threads = params.n_threads_batch = options.threads
    params.kv_unified = True  # else the context is divided between sequences, and a copy moves everything
    params.flash_attn_type = _FLASH_ATTENTION[options.flash_attention]
    with _listening() as errors:
        context = llama.llama_init_from_model(model, params)
    if not context:
        llama.llama_model_free(model)
        raise LoadFailed(
            f"No context of {options.context} tokens could be made: {_words(errors)}. Try a smaller --context."
        )
    return context


_FLASH_ATTENTION = {False: llama.LLAMA_FLASH_ATTN_TYPE_DISABLED, True: llama.LLAMA_FLASH_ATTN_TYPE_ENABLED}


@contextmanager
def _listening() -> Iterator[list[str]]:
    """llama.cpp says on its log, and nowhere else, why it failed. The log is one for the whole process."""
    errors: list[str] = []

    def listen(level: int, text: bytes, _: object) -> None:
        if level == _ERROR_LEVEL:
            errors.append(text.decode("utf-8", "replace").strip())

    callback = llama.llama_log_callback(listen)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield errors
    finally:
        llama.llama_log_set(_quiet, ctypes.c_void_p(0))


@llama.llama_log_callback
def _quiet(level: int, text: bytes, _: object) -> None:
    """llama.cpp keeps the address of its callback, so this one lives as long as the process."""


def _words(errors: Sequence[str]) -> str:
    """The first error is the cause; the later ones say that something else failed because of it."""
    return errors[0].rstrip(".") if errors else "llama.cpp did not say why"


# ── requantising ──────────────────────────────────────────────────────────────────────────────────────────────────────

_FILE_TYPES = {"Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0}


def requantise(source: Path, target: Path, quantisation: str) -> None:
    """Weights in another quantisation. What the source has lost already stays lost. Raises LoadFailed."""
    params = llama.llama_model_quantize_default_params()
    params.ftype = _FILE_TYPES[quantisation]
    params.allow_requantize = True
    with _listening() as errors:
        failed = llama.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.pointer(params))
    if failed:
        raise LoadFailed(f"{source} cannot be requantised to {quantisation}: {_words(errors)}.")
