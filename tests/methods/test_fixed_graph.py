"""Properties of all methods on a fixed graph: the warning about unreachable samples, and the neighbour search."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from samekind.data.dataset import Dataset
from samekind.errors import SettingError, UnreachableWarning
from samekind.methods import METHODS, build, is_iterative
from samekind.methods.base import Task
from samekind.methods.fixed_graph import GraphConfig, build_dataset_graph

NAMES = [name for name, spec in METHODS.items() if issubclass(spec.config, GraphConfig) and not is_iterative(name)]
TASK = Task(n_classes=2, n_labelled=2, n_samples=40, steps=0)


def heaps(*labels: int) -> Dataset:
    """Return ten points around each of four distant places; the first of each heap has the given label."""
    middles = torch.tensor([[0.0, 0.0], [1e3, 0.0], [0.0, 1e3], [1e3, 1e3]]).repeat_interleave(10, dim=0)
    x = middles + torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = torch.full((40,), -1)
    y[::10] = torch.tensor(labels)
    return Dataset(x, y, 2)


def solved(name: str, dataset: Dataset, **settings: Any) -> Any:
    method = build(name, None, TASK, {"n_neighbors": 4, **settings})
    method.refresh(dataset)
    return method.predictor()


@pytest.mark.parametrize("name", NAMES)
def test_parts_without_a_label_are_counted_in_a_warning(name: str) -> None:
    with pytest.warns(UnreachableWarning, match="20 of 40 samples lie in 2 parts of the graph without a label, and get"):
        predictor = solved(name, heaps(0, 1, -1, -1))
    f = predictor.probabilities(predictor.features(heaps(0, 1, -1, -1).x))
    assert (f[:10].argmax(1) == 0).all() and (f[10:20].argmax(1) == 1).all()
    torch.testing.assert_close(f[20:], torch.full((20, 2), 0.5), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_if_every_component_has_a_label_there_is_no_warning_and_each_keeps_its_class(name: str) -> None:
    dataset = heaps(0, 1, 1, 0)  # a warning would be an error here
    predictor = solved(name, dataset)
    f = predictor.probabilities(predictor.features(dataset.x))
    assert torch.equal(f.argmax(1), torch.tensor([0, 1, 1, 0]).repeat_interleave(10))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("setting", "value", "message"), [("search", "anm", "'ann'"), ("n_neighbors", 0, "a whole number, 1 or more")]
)
def test_a_graph_that_cannot_be_built_is_refused(name: str, setting: str, value: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        solved(name, heaps(0, 1, 1, 0), **{setting: value})


def test_approximate_neighbours_make_the_same_graph_of_a_small_dataset() -> None:
    dataset = heaps(0, 1, 1, 0)
    exact, by_cells = (build_dataset_graph(dataset, GraphConfig(4, search=search)) for search in ("exact", "ann"))
    assert abs(exact.W - by_cells.W).max() < 1e-6
    torch.testing.assert_close(exact.widths, by_cells.widths)
