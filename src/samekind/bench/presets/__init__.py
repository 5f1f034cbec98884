"""The tables of Wang, Tu & Zhou 2020, arXiv:2002.09891, as data: one module for each, one preset for each cell."""

from __future__ import annotations

from samekind.bench.paper_preset import PaperPreset
from samekind.bench.presets import ablation, cifar10, cifar10_randaugment, cifar100, svhn, svhn_randaugment
from samekind.errors import SettingError, did_you_mean

TABLES: dict[str, tuple[PaperPreset, ...]] = {  # in the order of the paper, from Table 1 on
    module.TABLE: module.PRESETS for module in (svhn, svhn_randaugment, cifar10, cifar10_randaugment, cifar100, ablation)
}
PRESETS = {preset.name: preset for presets in TABLES.values() for preset in presets}


def presets_in_table(table: int | str) -> tuple[PaperPreset, ...]:
    """All cells of a table, by its number in the paper or by its name."""
    names = list(TABLES)
    if isinstance(table, int):
        if not 1 <= table <= len(names):
            raise SettingError(f"there is no table {table}; expected 1 to {len(names)}: {', '.join(names)}")
        return TABLES[names[table - 1]]
    if table not in TABLES:
        raise SettingError(f"there is no table {table!r}; {did_you_mean(table, TABLES)}")
    return TABLES[table]


def preset(name: str) -> PaperPreset:
    """The preset called TABLE/METHOD/LABELS."""
    if name not in PRESETS:
        raise SettingError(f"no preset is called {name!r}; {did_you_mean(name, PRESETS)}")
    return PRESETS[name]
