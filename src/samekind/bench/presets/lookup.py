"""Presets and benches by name: those of the paper's tables, the other benchmarks, and the grid files of users."""

from __future__ import annotations

from pathlib import Path

from samekind.bench.grid import Bench
from samekind.bench.grid_file import read_grid_file
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
from samekind.bench.presets.paper_preset import PaperPreset
from samekind.errors import SettingError, did_you_mean

TABLES: dict[str, tuple[PaperPreset, ...]] = {  # in the order of the paper: Table 1 to Table 6
    module.TABLE: module.PRESETS for module in (svhn, svhn_randaugment, cifar10, cifar10_randaugment, cifar100, ablation)
}
PRESETS = {preset.name: preset for presets in TABLES.values() for preset in presets}

WITH_PAPER_SCALE = (toy, svhn, svhn_randaugment, cifar10, cifar10_randaugment, cifar100, ablation, similarity)
CPU_BENCHES: dict[str, Bench] = {module.CPU.name: module.CPU for module in (*WITH_PAPER_SCALE, mnist, cpu)}
PAPER_BENCHES: dict[str, Bench] = {module.PAPER.name: module.PAPER for module in WITH_PAPER_SCALE}


def presets_in_table(table: int | str) -> tuple[PaperPreset, ...]:
    """Return the presets of a table of the paper, given by its number or by its name."""
    names = list(TABLES)
    if isinstance(table, int):
        if not 1 <= table <= len(names):
            raise SettingError(f"the paper has no table {table}; expected 1 to {len(names)}: {', '.join(names)}")
        return TABLES[names[table - 1]]
    if table not in TABLES:
        raise SettingError(f"the paper has no table {table!r}; {did_you_mean(table, TABLES)}")
    return TABLES[table]


def find_preset(name: str) -> PaperPreset:
    """Return the preset with this name, which has the form TABLE/METHOD/LABELS."""
    if name not in PRESETS:
        raise SettingError(f"there is no preset {name!r}; {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def find_bench(name: str, scale: str = "cpu") -> Bench:
    """Return the bench with this name, or the one that a grid file describes if the name ends in .toml or .json."""
    if scale not in ("cpu", "paper"):
        raise SettingError(f"scale is {scale!r}; expected 'cpu' or 'paper'")
    if Path(name).suffix in (".toml", ".json"):
        return read_grid_file(Path(name))
    known = CPU_BENCHES if scale == "cpu" else PAPER_BENCHES
    if name not in known and name in CPU_BENCHES:
        raise SettingError(
            f"{name} is not a table of the paper, so it cannot run at the paper's scale. Leave out --scale paper."
        )
    if name not in known:
        raise SettingError(
            f"there is no benchmark {name!r}, and the name of a grid file must end in .toml or .json; "
            f"{did_you_mean(name, known)}"
        )
    return known[name]
