"""`python -m samekind` is the command `samekind`."""

from __future__ import annotations

from samekind.cli import app

if __name__ == "__main__":
    app(prog_name="samekind")
