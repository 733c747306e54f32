"""Scripts from files: a table a script, by the name of the model that it is.

    [two]
    about = "Asks two things at once, and reads the answers."

    [[two.steps]]
    turn = 0
    calls = [{ id = "a", tool = "x", args = { n = 1 } }, { id = "b", tool = "y" }]

    [[two.steps]]
    text = "Done."

JSON has the same shape. A name may have no `@`, behind which a request asks for latency and faults.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from scripted.scripts import SCRIPTS, Script

DECODERS = MappingProxyType({".toml": msgspec.toml.decode, ".json": msgspec.json.decode})


class BadScripts(ValueError):
    """A file of scripts that cannot be used; the message names the file and the field."""


def load_scripts(path: Path | str) -> Mapping[str, Script]:
    """The scripts of one file, by name. Raises BadScripts in one sentence."""
    path = Path(path)
    tree = _read(path)
    if not isinstance(tree, dict) or not tree:
        raise BadScripts(f"{path} has no scripts: it must be a table of them, by name.")
    return {name: _script(path, name, data) for name, data in tree.items()}


def known_scripts(paths: Iterable[Path]) -> Mapping[str, Script]:
    """The built-in scripts and those of the files. Raises BadScripts, also for a name that is taken."""
    known = dict(SCRIPTS)
    for path in paths:
        loaded = load_scripts(path)
        for name in loaded.keys() & known.keys():
            raise BadScripts(f"{path}: there is a script {name} already: give it another name.")
        known.update(loaded)
    return known


def _read(path: Path) -> Any:
    if path.suffix not in DECODERS:
        raise BadScripts(f"{path} is neither a .toml nor a .json file.")
    try:
        return DECODERS[path.suffix](path.read_bytes())
    except OSError as error:
        raise BadScripts(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadScripts(f"{path} is not valid {path.suffix[1:].upper()}: {error}.") from None


def _script(path: Path, name: str, data: Any) -> Script:
    if not name or "@" in name:
        raise BadScripts(f"{path}: a script cannot be named {name!r}: no name, and none with @, can be asked for.")
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise BadScripts(f"{path}: {name}: {str(error).replace(' - at `$.', ' - at `')}.") from None
