"""From chosen weights to an engine: what is checked before, and what is said when it cannot be."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from model_server.errors import LoadFailed
from model_server.machine import memory_available
from model_server.models import Chosen, flaw
from model_server.prompt import Text
from model_server.scheduler import Limits, Share

if TYPE_CHECKING:
    from model_server.service import Engine

COMPUTE_BYTES = 350 * 1024 * 1024  # buffers besides weights and cells, measured with the default batch
_PROBE_SECONDS_MAX = 300
_WARM_UP = "one two three four five six seven eight " * 5  # long enough to go the way of a prompt and not of a reply

_log = logging.getLogger(__name__)


class Settings(Struct, frozen=True, kw_only=True):
    """How the engine is set up."""

    limits: Limits
    threads: int
    flash_attention: bool = False
    matrix_unit: bool = True


def require_llama() -> None:
    """Raises LoadFailed with what to install. Called before anything is served, as importing is quick to fail."""
    try:
        import model_server.engine  # noqa: F401
    except ImportError as error:
        if error.name is None or not error.name.startswith(("llama_cpp", "numpy")):
            raise
        raise LoadFailed(
            "llama-cpp-python is not installed: pip install -e '.[local]', in a clone of this repository."
        ) from None
    except (OSError, RuntimeError) as error:
        raise LoadFailed(f"llama-cpp-python is installed and cannot be used: {error}.") from None


def refuse_without_memory(chosen: Chosen, limits: Limits, available: int | None) -> None:
    """Loading maps the file and allocates the cells; a machine without room would swap, or kill the process."""
    needed = chosen.path.stat().st_size + limits.cells * chosen.header.cell_bytes + COMPUTE_BYTES
    if available is not None and needed > available:
        raise LoadFailed(
            f"{chosen.name} with a context of {limits.cells} tokens needs {needed / 1e6:,.0f} MB of memory, and "
            f"{available / 1e6:,.0f} MB are available: choose a smaller --context or a smaller model."
        )


def load(chosen: Chosen, settings: Settings, on_progress: Callable[[float], None]) -> Engine:
    """Verifies, loads and warms up. Raises LoadFailed."""
    from model_server import engine

    if chosen.weights and (wrong := flaw(chosen.path, chosen.weights, lambda part: on_progress(part * 0.3))):
        raise LoadFailed(f"{chosen.path} {wrong}: delete it and run `model-server fetch {chosen.name}`.")
    refuse_without_memory(chosen, settings.limits, memory_available())
    options = engine.Options(
        context=settings.limits.cells,
        lines=settings.limits.sequences + settings.limits.kept,
        batch_tokens=settings.limits.batch_tokens,
        threads=settings.threads,
        flash_attention=settings.flash_attention,
        repack=settings.matrix_unit and matrix_unit_works(chosen.path),
    )
    loaded = engine.Engine(chosen.path, options, lambda part: on_progress(0.3 + part * 0.6))
    warm_up(loaded)
    on_progress(1.0)
    return loaded


def warm_up(engine: Engine) -> None:
    """One small batch, so that the first request does not pay for touching all weights. Leaves nothing behind."""
    from model_server.cells import Keep

    tokens = tuple(engine.tokenise(Text(_WARM_UP)))
    if engine.decode([Share(task=0, sequence=0, position=0, tokens=tokens, whole=True)]):
        raise LoadFailed("The model was loaded and cannot compute anything.")
    engine.apply([Keep(0, 0)])


def matrix_unit_works(path: Path) -> bool:
    """On some virtual machines the processor announces AMX and llama.cpp dies of using it (llama.cpp #20824).

    Only another process can find that out and live.
    """
    from model_server import engine

    if not engine.uses_matrix_unit():
        return True
    command = [sys.executable, "-m", "model_server.probe", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=_PROBE_SECONDS_MAX)
    if done.returncode:
        _log.warning(
            "this machine announces AMX, and llama.cpp cannot use it: going on without repacked weights, which is "
            "slower. Build llama-cpp-python with -mno-amx-int8 among its compiler flags to have them."
        )
    return not done.returncode
