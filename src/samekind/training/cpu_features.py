"""Whether the processor can do what it says.

Some virtual machines list AMX among what their processor has, grant it to a program that asks, and end the program at its first
tile all the same. Nothing tells beforehand, and bfloat16 is computed in tiles; so a process of its own tries.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


@lru_cache(maxsize=1)
def bfloat16_works() -> bool:
    """False if a product of bfloat16 matrices ends the program; it is tried once, and only where the processor lists AMX."""
    return not _lists_amx() or survives(PRODUCT)


def survives(code: str) -> bool:
    """Whether a process that runs this code meets no instruction that is illegal here."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode != -signal.SIGILL


def _lists_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        return "amx_tile" in cpuinfo.read_text().split()
    except OSError:
        return False
