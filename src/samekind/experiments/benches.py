"""The benches there are, by name, and how a user's file or what was asked for makes one."""

from __future__ import annotations

from pathlib import Path

from samekind.errors import SettingError, did_you_mean
from samekind.experiments.grid import Bench, from_file
from samekind.experiments.presets import (
    ablation,
    cifar10,
    cifar10_randaugment,
    cifar100,
    mnist,
    similarity,
    svhn,
    svhn_randaugment,
    toy,
)

CPU = {
    bench.name: bench
    for bench in (
        toy.CPU,
        svhn.CPU,
        svhn_randaugment.CPU,
        cifar10.CPU,
        cifar10_randaugment.CPU,
        cifar100.CPU,
        ablation.CPU,
        similarity.CPU,
        mnist.CPU,
    )
}
PAPER = {
    bench.name: bench
    for bench in (
        toy.PAPER,
        svhn.PAPER,
        svhn_randaugment.PAPER,
        cifar10.PAPER,
        cifar10_randaugment.PAPER,
        cifar100.PAPER,
        ablation.PAPER,
        similarity.PAPER,
    )
}


def bench_called(name: str, scale: str = "cpu") -> Bench:
    """The bench of a name, or of a user's grid file."""
    if scale not in ("cpu", "paper"):
        raise SettingError(f"scale is {scale!r}; expected 'cpu' or 'paper'")
    if Path(name).suffix in (".toml", ".json"):
        return from_file(Path(name))
    known = CPU if scale == "cpu" else PAPER
    if name not in known and name in CPU:
        raise SettingError(f"{name} is no table of the paper, and so it has no paper scale. Leave --scale out.")
    if name not in known:
        raise SettingError(f"no bench is called {name!r}; {did_you_mean(name, known)}. A grid file ends in .toml or .json.")
    return known[name]
