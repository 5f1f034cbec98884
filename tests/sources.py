"""Parsing of source files."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, parsed with garbage collection disabled.

    Python 3.11 has one recursion counter for all parsers. A collection in the middle of parsing may let another thread parse
    too, and both then fail with a SystemError (python/cpython#106905).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_on:
            gc.enable()
