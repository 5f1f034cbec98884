"""Local and global consistency as a method; what it shares with label propagation is tested there."""

from __future__ import annotations

import pytest
import torch
from tests.methods.by_hand import moons

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError, SettingError
from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.base import Method, Task
from samekind.methods.lgc import LGCConfig, LocalGlobalConsistency
from samekind.methods.predictors import GraphPredictor

TASK = Task(n_classes=2, n_labelled=6, n_samples=200, steps=0)


def trained(dataset: Dataset, config: LGCConfig | None = None) -> GraphPredictor:
    method = LocalGlobalConsistency(None, TASK, config)
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


def test_two_moons_with_six_labels_are_separated() -> None:
    dataset, truth = moons()
    predictor = trained(dataset)
    f = predictor.probabilities(predictor.features(dataset.x + 0.01))
    assert (f.argmax(1) == truth).float().mean() > 0.95


def test_settings_reach_the_graph_and_the_solver() -> None:
    dataset, _ = moons()
    W, _ = self_tuning_graph(dataset.x, 7)
    expected = local_global_consistency(W, dataset.y.numpy(), 2, alpha=0.5)
    predictor = trained(dataset, LGCConfig(n_neighbors=7, alpha=0.5))
    assert predictor.n_neighbors == 7
    torch.testing.assert_close(predictor.F, torch.from_numpy(expected).float())


def test_a_small_alpha_keeps_the_labels_as_they_are() -> None:
    dataset, _ = moons()
    f = trained(dataset, LGCConfig(alpha=1e-9)).probabilities(dataset.x[dataset.labelled])
    torch.testing.assert_close(f, torch.eye(2)[dataset.y[dataset.labelled]])


def test_a_loaded_state_predicts_the_same() -> None:
    dataset, _ = moons()
    predictor = trained(dataset)
    other = GraphPredictor(200, 2, 2, predictor.n_neighbors)
    other.load_state_dict(predictor.state_dict())
    assert torch.equal(other.probabilities(dataset.x + 0.1), predictor.probabilities(dataset.x + 0.1))


def test_a_second_full_pass_gives_the_same_numbers() -> None:
    dataset, _ = moons()
    assert torch.equal(trained(dataset).F, trained(dataset).F)


def test_it_is_a_method_that_needs_no_steps() -> None:
    method: Method = LocalGlobalConsistency(None, TASK)
    nothing = torch.zeros(0)
    assert LocalGlobalConsistency.iterative is False
    assert method.losses(Batch((), nothing, (), nothing), progress=0.0) == {}
    method.after_step()
    assert list(method.parameters()) == []


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match=r"Call refresh\(dataset\)"):
        LocalGlobalConsistency(None, TASK).predictor()
    with pytest.raises(SettingError, match=r"alpha is 1\.0"):
        trained(moons()[0], LGCConfig(alpha=1.0))
