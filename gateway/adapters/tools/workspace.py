"""The four tools of the published figures, over one folder. Their words are part of the figures: each token counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway.adapters.tools.folder import ENTRIES_MAX, Folder
from gateway.adapters.tools.notes import Notes
from gateway.adapters.tools.tool import Tool
from gateway.core.codec import encode
from gateway.core.ports import ToolContext
from gateway.core.run import ToolSpec

FILE_BYTES_MAX = 256 * 1024
FILES_MAX = 1000
ARCHIVE_FILES = 1200
SCAN_STEP_FILES = 200
SCAN_STEP_SECONDS = 0.5
MISSING = "missing"

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
PATH_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "File name."}},
    "required": ["path"],
}

LIST_FILES = ToolSpec(
    name="list_files",
    description="List the files in the directory.",
    parameters=NO_ARGUMENTS,
    read_only=True,
    cacheable=True,
    quick=True,
)
READ_FILE = ToolSpec(
    name="read_file",
    description="Read one file in the directory and return its text.",
    parameters=PATH_ARGUMENT,
    read_only=True,
    cacheable=True,
    quick=True,
)
DELETE_FILE = ToolSpec(
    name="delete_file",
    description="Delete one file. This cannot be undone.",
    parameters=PATH_ARGUMENT,
    needs_approval=True,
    idempotent=True,
)
SCAN_ARCHIVE = ToolSpec(
    name="scan_archive",
    description="Scan every file in the archive. Slow.",
    parameters=NO_ARGUMENTS,
    read_only=True,
)


class Workspace:
    """The folder as tools. The archive is make-believe: its scan only takes time and reports how far it is. With
    `notes`, a deletion that is run again after a crash answers as it did."""

    def __init__(
        self,
        folder: Path,
        *,
        notes: Notes | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
        entries_max: int = ENTRIES_MAX,
        scan_step_seconds: float = SCAN_STEP_SECONDS,
    ) -> None:
        self._folder = Folder(folder, file_bytes_max=file_bytes_max)
        self._notes = notes
        self._files_max = files_max
        self._entries_max = entries_max
        self._scan_step_seconds = scan_step_seconds

    def tools(self) -> dict[str, Tool]:
        """By name, in the order in which the model is shown them."""
        pairs = (
            (LIST_FILES, self.list_files),
            (READ_FILE, self.read_file),
            (DELETE_FILE, self.delete_file),
            (SCAN_ARCHIVE, self.scan_archive),
        )
        return {spec.name: Tool(spec, run) for spec, run in pairs}

    def list_files(self, args: dict[str, Any], ctx: ToolContext) -> str:
        found = self._folder.listing(self._entries_max)
        shown = encode(found.names[: self._files_max]).decode()
        more = max(0, len(found.names) - self._files_max)
        if not found.whole:
            return f"{shown} [cut: {more} files more, and all that is behind the first {self._entries_max} entries]"
        return f"{shown} [cut: {more} files more]" if more else shown

    def read_file(self, args: dict[str, Any], ctx: ToolContext) -> str:
        return self._folder.read(args["path"])

    def delete_file(self, args: dict[str, Any], ctx: ToolContext) -> str:
        path: str = args["path"]
        return f"Deleted {path}." if self._delete(path, ctx.idempotency_key) else f"{path} was already gone."

    def _delete(self, path: str, key: str) -> bool:
        """Whether the file was there when the call first looked. A file that took its place since is left alone."""
        if self._notes is None:
            return self._folder.delete(path)
        now = self._folder.identity(path)
        found, again = self._notes.first(key, now or MISSING)
        if not again:
            return self._folder.delete(path)
        if found == now:
            self._folder.delete(path)
        return found != MISSING

    async def scan_archive(self, args: dict[str, Any], ctx: ToolContext) -> str:
        label = ""
        for scanned in range(SCAN_STEP_FILES, ARCHIVE_FILES + 1, SCAN_STEP_FILES):
            await asyncio.sleep(self._scan_step_seconds)
            label = f"scanned {scanned} of {ARCHIVE_FILES} files"
            ctx.progress(label)
        return label
