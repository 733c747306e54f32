"""The three sample files of the published scenarios, for a workspace that is made anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

FILES: dict[str, str] = {
    "access.log": "GET /health 200\nGET /login 200\n",
    "errors.log": "ERROR timeout: worker 7 timed out after 30000 ms\n",
    "notes.txt": "Remember to rotate your logs.\n",
}


def write_workspace(folder: Path) -> None:
    """Create the folder with the sample files in it: made beside its place and moved there, so whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        draft = Path(beside) / folder.name
        draft.mkdir()
        for name, text in FILES.items():
            (draft / name).write_text(text)
        draft.rename(folder)
