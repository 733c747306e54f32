"""What this machine has: physical cores, and memory that can still be had."""

import os
from pathlib import Path

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cpuinfo: str | None = None) -> int:
    """Cores, not hyperthreads, that this process may use. Where the system does not say, all processors."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = _read(_PROC / "cpuinfo") if cpuinfo is None else cpuinfo
    cores = {_core(block) for block in text.split("\n\n") if "core id" in block}
    return max(1, min(usable, len(cores) or usable))


def _core(block: str) -> tuple[str, str]:
    fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return named.get("physical id", ""), named.get("core id", "")


def memory_available() -> int | None:
    """Bytes, or None where the system does not say. A container's limit counts."""
    system = _meminfo(_read(_PROC / "meminfo"))
    group = _group_left(_read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current"))
    known = [value for value in (system, group) if value is not None]
    return min(known) if known else None


def _meminfo(text: str) -> int | None:
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group_left(most: str, current: str) -> int | None:
    return int(most) - int(current) if most.strip().isdigit() and current.strip().isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
