"""The benches there are, by name, and how a user's file or what was asked for makes one."""

from __future__ import annotations

from pathlib import Path

from samekind.bench.grid import Bench, read_grid_file
from samekind.bench.presets import (
    ablation,
    cifar10,
    cifar10_randaugment,
    cifar100,
    cpu,
    mnist,
    similarity,
    svhn,
    svhn_randaugment,
    toy,
)
from samekind.errors import SettingError, did_you_mean

TABLES = (toy, svhn, svhn_randaugment, cifar10, cifar10_randaugment, cifar100, ablation, similarity)
CPU: dict[str, Bench] = {table.CPU.name: table.CPU for table in (*TABLES, mnist, cpu)}
PAPER: dict[str, Bench] = {table.PAPER.name: table.PAPER for table in TABLES}


def find_bench(name: str, scale: str = "cpu") -> Bench:
    """The bench of a name, or of a user's grid file."""
    if scale not in ("cpu", "paper"):
        raise SettingError(f"scale is {scale!r}; expected 'cpu' or 'paper'")
    if Path(name).suffix in (".toml", ".json"):
        return read_grid_file(Path(name))
    known = CPU if scale == "cpu" else PAPER
    if name not in known and name in CPU:
        raise SettingError(f"{name} is no table of the paper, and so it has no paper scale. Leave --scale out.")
    if name not in known:
        raise SettingError(f"no bench is called {name!r}, and a grid file ends in .toml or .json; {did_you_mean(name, known)}")
    return known[name]
