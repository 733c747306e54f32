"""The operator's own code, found by a path: `package.module:name`.

Imports when it is asked to and never before: whoever only reads a configuration runs nobody's code.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gateway.core.errors import GatewayError


class CannotLoad(GatewayError):
    """A path that leads to nothing that can be called."""


def make_importable(folders: Iterable[str]) -> None:
    """Put the folders in front of what Python searches, as it does itself with the folder of a script."""
    for folder in reversed([str(Path(folder).resolve()) for folder in folders]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    importlib.invalidate_caches()


def load(path: str) -> Callable[..., Any]:
    """What the path names. Raises CannotLoad, in one sentence that begins with the path."""
    module_name, names = split(path)
    found: Any = imported(module_name, path)
    for name in names.split("."):
        if not hasattr(found, name):
            raise CannotLoad(f"{path}: {module_name} has no {names}.")
        found = getattr(found, name)
    if not callable(found):
        raise CannotLoad(f"{path} is no function but {type(found).__name__}.")
    return found


def split(path: str) -> tuple[str, str]:
    """The module, and the name in it."""
    module_name, _, names = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *names.split("."))):
        raise CannotLoad(f"{path!r} names no function: write module:function, as in {example(path)}.")
    return module_name, names


def example(path: str) -> str:
    """What was probably meant."""
    module_name, dot, name = path.rpartition(".")
    is_dotted = dot and all(part.isidentifier() for part in path.split("."))
    return f"{module_name}:{name}" if is_dotted else "mytools:add"


def imported(module_name: str, path: str) -> Any:
    """Whatever a module does on import is its own doing, exiting included, so all of it is told and none of it ours."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{module_name}.".startswith(f"{missing}."):
            raise CannotLoad(f"{path}: no module {missing} in python_path or among what is installed.") from None
        raise CannotLoad(f"{path}: {module_name} needs the module {missing}, which is not installed.") from error
    except (Exception, SystemExit) as error:
        raise CannotLoad(f"{path}: importing {module_name} failed: {type(error).__name__}: {error}.") from error
