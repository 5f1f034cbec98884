"""CPU features: whether this processor can compute in bfloat16.

Some virtual machines list AMX (Intel's matrix instructions) among the CPU flags and then kill every program that uses it. Torch
computes bfloat16 products with AMX. So a separate process tries one product first.
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
    """Return False if a bfloat16 matrix product kills the process that computes it.

    The product is tried once, in a separate process, and only if the processor lists AMX.
    """
    return not _lists_amx() or survives(PRODUCT)


def survives(code: str) -> bool:
    """Return whether a Python process that runs this code ends without an illegal-instruction signal (SIGILL)."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode != -signal.SIGILL


def _lists_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        return "amx_tile" in cpuinfo.read_text().split()
    except OSError:
        return False
