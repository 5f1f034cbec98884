"""Label propagation as a method: it solves the dataset's graph, and predicts points outside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import make_moons
from tests.methods.by_hand import moons

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError
from samekind.graphs.affinity import out_of_sample_widths, self_tuning_graph
from samekind.methods.base import Method, Task
from samekind.methods.label_propagation import LabelPropagation, LabelPropagationConfig
from samekind.methods.predictors import GraphPredictor

TASK = Task(n_classes=2, n_labelled=6, n_samples=200, steps=0)


def trained(dataset: Dataset, n_neighbors: int | None = None) -> GraphPredictor:
    method = LabelPropagation(None, TASK, LabelPropagationConfig(n_neighbors))
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


def test_two_moons_with_six_labels_are_separated() -> None:
    dataset, truth = moons()
    predictor = trained(dataset)
    predicted = predictor.probabilities(predictor.features(dataset.x)).argmax(1)
    assert (predicted == truth).float().mean() > 0.95


def test_points_outside_the_dataset_are_classified_too() -> None:
    dataset, _ = moons()
    x, truth = make_moons(100, noise=0.05, random_state=1)
    predictor = trained(dataset)
    f = predictor.probabilities(predictor.features(torch.from_numpy(x)))
    assert (f.argmax(1) == torch.from_numpy(truth)).float().mean() > 0.95


def test_labelled_points_keep_their_labels_and_graph_points_their_own_prediction() -> None:
    dataset, _ = moons()
    predictor = trained(dataset)
    f = predictor.probabilities(predictor.features(dataset.x))
    torch.testing.assert_close(f, predictor.F)
    assert torch.equal(f[dataset.labelled].argmax(1), dataset.y[dataset.labelled])


def test_a_point_far_from_everything_still_gets_probabilities() -> None:
    dataset, _ = moons()
    f = trained(dataset).probabilities(torch.tensor([[1e6, -1e6], [50.0, 0.0]]))
    torch.testing.assert_close(f.sum(1), torch.ones(2))


def test_duplicates_that_disagree_are_averaged() -> None:
    x = torch.tensor([[0.0], [0.0], [1.0], [2.0], [3.0]])
    predictor = trained(Dataset(x, torch.tensor([0, 1, -1, -1, -1]), 2), n_neighbors=2)
    torch.testing.assert_close(predictor.probabilities(torch.zeros(1, 1)), torch.full((1, 2), 0.5))


def test_similarity_is_the_graphs_own_weight() -> None:
    dataset, _ = moons(60)
    predictor = trained(dataset, n_neighbors=6)
    S = predictor.similarity(dataset.x, dataset.x)
    W = torch.from_numpy(self_tuning_graph(dataset.x, 6)[0].toarray()).float()
    assert S.min() >= 0 and torch.equal(S.diagonal(), torch.ones(60))
    torch.testing.assert_close(S[W > 1e-6], W[W > 1e-6])


def test_identical_points_are_similar_even_in_a_heap() -> None:
    x = torch.cat([torch.full((8, 3), 1e3), torch.full((2, 3), 1e3 + 1e-3), torch.zeros(2, 3)])
    predictor = trained(Dataset(x, torch.tensor([0, 1] + 10 * [-1]), 2), n_neighbors=3)
    assert torch.equal(predictor.similarity(x, x).diagonal(), torch.ones(12))


@pytest.mark.parametrize("seen", [lambda p: p, lambda p: p.double()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_either_precision_may_be_given(dtype: torch.dtype, seen: Callable[[GraphPredictor], GraphPredictor]) -> None:
    dataset, truth = moons(dtype=dtype)
    predictor = seen(trained(dataset))
    z = predictor.features(dataset.x)
    f = predictor.probabilities(z)
    assert z.dtype == f.dtype == predictor.similarity(z[:3], z).dtype == predictor.points.dtype
    assert (f.argmax(1) == truth).float().mean() > 0.95


def test_images_are_flattened_also_where_they_are_bytes() -> None:
    x = torch.randint(0, 256, (12, 4, 4, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    dataset = Dataset(x, torch.tensor([0, 1] + 10 * [-1]), 2)
    predictor = trained(dataset, n_neighbors=4)
    z = predictor.features(dataset.inputs(slice(None)))
    assert z.shape == (12, 48)
    assert torch.equal(predictor.widths, out_of_sample_widths(z, predictor.points, predictor.widths, 4))
    torch.testing.assert_close(predictor.probabilities(z), predictor.F)


def test_a_saved_predictor_predicts_the_same(tmp_path: Path) -> None:
    dataset, _ = moons()
    predictor = trained(dataset)
    save_file(predictor.state_dict(), tmp_path / "graph.safetensors")
    other = GraphPredictor(200, 2, 2, predictor.n_neighbors)
    other.load_state_dict(load_file(tmp_path / "graph.safetensors"))
    x = dataset.x + 0.1
    assert torch.equal(other.probabilities(x), predictor.probabilities(x))
    assert torch.equal(other.similarity(x, dataset.x), predictor.similarity(x, dataset.x))


def test_it_is_a_method_that_needs_no_steps() -> None:
    method: Method = LabelPropagation(None, TASK)
    nothing = torch.zeros(0)
    assert LabelPropagation.iterative is False
    assert method.losses(Batch((), nothing, (), nothing), progress=0.0) == {}
    method.after_step()
    assert list(method.parameters()) == []


def test_without_refresh_there_is_no_predictor() -> None:
    with pytest.raises(DataError, match=r"Call refresh\(dataset\)"):
        LabelPropagation(None, TASK).predictor()
