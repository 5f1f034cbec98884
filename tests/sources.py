"""Source files as trees."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """The tree of a file, made while no garbage is collected.

    Python 3.11 counts the depth of all trees under way together. A collection in the middle of one may let another thread make
    a tree of its own, and both are then refused with a SystemError (python/cpython#106905).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_on:
            gc.enable()
