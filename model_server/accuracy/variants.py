"""Which weights are compared: the published quantisations, or, where the hub cannot be reached, the stand-in's,
requantised here from its Q4_K_M, which costs a little of what better weights could do."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from model_server import fetch as fetching
from model_server.errors import FetchFailed
from model_server.gguf import read_header
from model_server.registry import OF_RECORD, REGISTRY, STAND_IN

Say = Callable[[str], None]

QUANTISATIONS = ("Q4_K_M", "Q4_0", "Q8_0")


class Variant(Struct, frozen=True):
    """Weights, and how they are used. `origin` says where they are from, in a word or two."""

    path: Path
    quantisation: str
    origin: str
    flash_attention: bool


def variants(quantisations: Sequence[str], cache: Path, scratch: Path, say: Say) -> list[Variant]:
    """Each with flash attention on and off. Raises FetchFailed if neither the hub nor the stand-in can be had."""
    stand_in = _stand_in_if_needed(cache, say)
    found = [_weights(name, stand_in, cache, scratch, say) for name in quantisations]
    return [Variant(path, name, origin, flash) for name, path, origin in found for flash in (True, False)]


def _stand_in_if_needed(cache: Path, say: Say) -> Path | None:
    try:
        fetching.fetch(REGISTRY[OF_RECORD], cache, say=say)
    except FetchFailed as refused:
        say(str(refused))
        say("The stand-in is measured in its place.")
        return fetching.fetch(REGISTRY[STAND_IN], cache, say=say)
    return None


def _weights(name: str, stand_in: Path | None, cache: Path, scratch: Path, say: Say) -> tuple[str, Path, str]:
    if stand_in is None:
        weights = REGISTRY[f"qwen2.5-0.5b-instruct-{name.lower()}"]
        return name, fetching.fetch(weights, cache, say=say), "published"
    if name == read_header(stand_in).quantisation:
        return name, stand_in, "stand-in"
    from model_server.engine import requantise

    target = scratch / stand_in.name.replace("q4_k_m", name.lower())
    say(f"requantising the stand-in to {name}")
    requantise(stand_in, target, name)
    return name, target, "stand-in, requantised from Q4_K_M"
