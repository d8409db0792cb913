"""Clocks of single processes that a test sets forward and back, by a library that it compiles."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock.c")
SHIFTS: Final = (-36_000, -3600, -30, 30, 3600, 36_000)
"""The seconds by which a clock is set before or after the machine's.

Two clocks differ by less than a day. From a day on, the broker takes a new time at once, and forgets the outcomes of
old half messages.
"""


def why_not() -> str:
    """Return why clocks cannot be set here; empty if they can."""
    if sys.platform != "linux":
        return "clocks are set by a library for Linux"
    return "" if shutil.which("cc") else "clocks are set by a library, and there is no C compiler"


def compiled(folder: Path) -> Path:
    """Compile the library."""
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


class Clock:
    """The clock of one process and its successors."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        file.write_bytes(struct.pack("<q", 0))
        self.environment = {"LD_PRELOAD": str(library), "ESCROWMQ_TESTS_CLOCK": str(file)}

    def set(self, seconds: int) -> None:
        """Set it to so many seconds after the machine's clock; before it, if the number is negative."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", seconds))
