"""What every measurement is labelled with: the machine and the day."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

CPU_INFO = Path("/proc/cpuinfo")


class Machine(Struct, frozen=True, kw_only=True):
    cores: int
    processor: str
    python: str
    taken_at: str


def this_machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        processor=processor(),
        python=platform.python_version(),
        taken_at=datetime.now(UTC).date().isoformat(),
    )


def processor() -> str:
    """Its name where the system tells, else its kind."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, [*names, platform.processor()]), platform.machine())
