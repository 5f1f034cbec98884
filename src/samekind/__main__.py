"""Entry point of `python -m samekind`, which is the same as the command `samekind`."""

from __future__ import annotations

from samekind.cli import app

if __name__ == "__main__":
    app(prog_name="samekind")
