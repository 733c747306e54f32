"""Where weights are kept on this machine, whether they are intact, and which ones are meant."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from model_server.errors import LoadFailed
from model_server.gguf import Header, read_header
from model_server.registry import OF_RECORD, PREFERRED, REGISTRY, STAND_IN, Weights

CACHE_VARIABLE = "MODEL_SERVER_CACHE"
_BLOCK_BYTES = 4 * 1024 * 1024


class Chosen(Struct, frozen=True):
    """The weights to serve. `weights` is None for a file that the registry does not know."""

    name: str
    path: Path
    header: Header
    weights: Weights | None
    note: str = ""


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "agent-sidecar" / "models"


def cached_path(weights: Weights, folder: Path) -> Path | None:
    """Where the weights lie whole, as far as their size tells."""
    path = folder / weights.file
    return path if path.is_file() and path.stat().st_size == weights.size_bytes else None


def flaw(path: Path, weights: Weights, on_progress: Callable[[float], None] = lambda _: None) -> str | None:
    """What is wrong with a file that should hold the weights, in words that follow its name."""
    size = path.stat().st_size
    if size != weights.size_bytes:
        return f"has {size:,} bytes where {weights.size_bytes:,} are expected"
    if _sha256(path, on_progress) != weights.sha256:
        return "does not have the sha256 that is expected"
    return None


def _sha256(path: Path, on_progress: Callable[[float], None]) -> str:
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            on_progress(done / size)
    return digest.hexdigest()


def choose(asked: str | None, folder: Path) -> Chosen:
    """A name of the registry, a path, or what is best of what is here. Raises LoadFailed with what to do."""
    if asked is None:
        return _best(folder)
    if asked in REGISTRY:
        return _registered(REGISTRY[asked], folder)
    path = Path(asked).expanduser()
    if path.exists():
        return Chosen(path.stem, path, read_header(path), None)
    raise LoadFailed(f"{asked} is neither a file nor a model of the registry: {', '.join(REGISTRY)}.")


def default(folder: Path) -> str | None:
    """The name that is served where none is asked for; None where there is nothing to serve."""
    return next((name for name in PREFERRED if cached_path(REGISTRY[name], folder)), None)


def _best(folder: Path) -> Chosen:
    if name := default(folder):
        note = f"{OF_RECORD} is not cached; {name} is served in its place." if name != OF_RECORD else ""
        return _registered(REGISTRY[name], folder, note)
    raise LoadFailed(
        f"No model is here yet: run `model-server fetch {OF_RECORD}`, "
        f"or `model-server fetch {STAND_IN}` where the model hub cannot be reached."
    )


def _registered(weights: Weights, folder: Path, note: str = "") -> Chosen:
    path = folder / weights.file
    if not path.exists():
        raise LoadFailed(f"{weights.name} is not cached: run `model-server fetch {weights.name}`.")
    if not cached_path(weights, folder):
        raise LoadFailed(f"{path} {flaw(path, weights)}: delete it and run `model-server fetch {weights.name}`.")
    return Chosen(weights.name, path, read_header(path), weights, note)
