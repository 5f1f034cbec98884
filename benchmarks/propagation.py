"""Measure label propagation over the features of a trained network, with different edge weights.

    python benchmarks/propagation.py --methods mean_teacher,fixmatch,learned_graph --out results/propagation.jsonl

Each method trains with the same labels and the same compute budget, by default on MNIST with 100 labels. The labels are then
propagated over the graph of the 10 nearest neighbours by the cosine of the features (local and global consistency, alpha 0.99).
The edge weights are 1, the third
power of the cosine, the agreement p.p of the two predictions, or the learned W of the similarity network Phi. The table shows
the error of the classifier and after propagation: of the unlabelled training images, and of the test images, which take the
weighted mean of their 10 nearest training images. Splits from seed 1000 on are for development; no reported run uses them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor
from torch.nn.functional import normalize

from samekind.bench.grid import RunSpec
from samekind.bench.running.runner import steps_in_budget
from samekind.data.hub.loaders import BenchmarkData, load_dataset
from samekind.data.splits import draw_split
from samekind.evaluation.metrics import error_rate
from samekind.fitting.fit_model import fit_model
from samekind.fitting.fit_options import FitOptions
from samekind.graphs.affinity import graph_from_neighbors
from samekind.graphs.linear_systems import conjugate_gradients, degrees, normalize_rows
from samekind.graphs.nearest_neighbors import nearest_neighbors, neighbors_within
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.predictors import DeepPredictor
from samekind.search.pair_scores import make_pair_score
from samekind.training.determinism import single_thread

from bench_tables import mean_and_spread, read_runs, record_runs, show

N_NEIGHBORS, ALPHA, GAMMA = 10, 0.99, 3.0
SMOOTHING = (0.5, 0.8, 0.95)
LABEL_WEIGHT = 3.0
TOLERANCE = 1e-6  # of the linear solver
BLOCK = 2000  # samples whose edges are weighted at a time
Array = npt.NDArray[Any]
EdgeWeights = Callable[[Tensor, Tensor, Tensor], Tensor]  # from features, the others' features, and neighbours (n, k) to (n, k)


class Neighbors(NamedTuple):
    """Features (n, d) of samples, and the indices (n, k) of the training images that are nearest by cosine."""

    z: Tensor
    indices: Tensor


def edge_weights(predictor: DeepPredictor) -> dict[str, EdgeWeights]:
    """Return the functions that weight edges, by name; "learned W" needs a similarity network."""

    def cosine(z: Tensor, others: Tensor, indices: Tensor) -> Tensor:
        v, w = normalize(z, dim=1), normalize(others, dim=1)
        return torch.einsum("nd,nkd->nk", v, w[indices]).clamp_min(0.0).pow(GAMMA)

    def agreement(z: Tensor, others: Tensor, indices: Tensor) -> Tensor:
        return torch.einsum("nc,nkc->nk", predictor.probabilities(z), predictor.probabilities(others)[indices])

    def learned(z: Tensor, others: Tensor, indices: Tensor) -> Tensor:
        score = make_pair_score(predictor)
        return torch.sigmoid(score.selected(score.left(z), score.right(others), indices))

    weights: dict[str, EdgeWeights] = {"W = 1": lambda z, others, indices: torch.ones(indices.shape)}
    weights |= {"cosine": cosine, "p.p": agreement}
    return weights | ({"learned W": learned} if predictor.similarity_net is not None else {})


@torch.no_grad()
def weigh(weight: EdgeWeights, samples: Neighbors, others: Tensor) -> Tensor:
    """Return the weights (n, k) of the edges of all samples."""
    blocks = zip(torch.split(samples.z, BLOCK), torch.split(samples.indices, BLOCK), strict=True)
    return torch.cat([weight(z, others, indices).float() for z, indices in blocks])


def smooth(W: csr_array, p: Array, y: Array, alpha: float) -> Array:
    """Return F = (1 - alpha) (I - alpha S)^-1 Q, where Q are the classifier's probabilities, and the labels with weight 3."""
    Q = p.astype(np.float64)
    labelled = np.flatnonzero(y >= 0)
    Q[labelled] = 0.0
    Q[labelled, y[labelled]] = LABEL_WEIGHT
    degree = degrees(W)
    root = diags_array(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    system = csr_array(diags_array(np.ones(len(y))) - alpha * (root @ W @ root))
    return normalize_rows(conjugate_gradients(system, (1.0 - alpha) * Q, TOLERANCE))


@torch.no_grad()
def measure(method: str, data: BenchmarkData, labels: int, seed: int, budget: float, n_images: int) -> list[dict[str, Any]]:
    """Train one method on one split; return a record for the classifier and one for each sort of edge weights."""
    split = draw_split(data.y, labels, seed)
    chosen = np.union1d(split.labelled, np.random.default_rng(seed).permutation(len(data.y))[:n_images])
    x, y = data.x[chosen], split.y[chosen]
    names = np.array([*data.classes, None], dtype=object)
    options: dict[str, Any] = {"encoder": None}
    spec = RunSpec("propagation", method, data.name, labels, method, seed, budget=budget, options=options)
    with single_thread(True), torch.enable_grad():
        steps = steps_in_budget(spec, x, names[y])
        fit = fit_model(x, names[y], FitOptions(method, random_state=seed, **options), steps=steps, keep_training_set=False)
    predictor = fit.model.predictor
    assert isinstance(predictor, DeepPredictor)
    z, z_test = (fit.model.features(images).float().cpu() for images in (x, data.x_test))
    predictor = predictor.float().cpu()
    unlabelled, truth = y < 0, data.y[chosen]

    def record(weights: str, train: Array, test: Array) -> dict[str, Any]:
        errors = {"train": error_rate(train[unlabelled], truth[unlabelled]), "test": error_rate(test, data.y_test)}
        run = {
            "data": data.name,
            "labels": labels,
            "n": len(x),
            "budget": budget,
            "method": method,
            "seed": seed,
            "steps": steps,
        }
        return {**run, "weights": weights, **errors}

    f, f_test = (predictor.probabilities(each).argmax(1).numpy() for each in (z, z_test))
    _, near = neighbors_within(normalize(z, dim=1), N_NEIGHBORS)
    agreement = float((f[near.numpy()] == f[:, None]).mean())  # fraction of edges whose two images get one predicted class
    records = [{**record("classifier", f, f_test), "agreement": agreement}]
    _, near_test = nearest_neighbors(normalize(z_test, dim=1), normalize(z, dim=1), N_NEIGHBORS)
    p = predictor.probabilities(z).numpy()
    for name, weight in edge_weights(predictor).items():
        W = graph_from_neighbors(weigh(weight, Neighbors(z, near), z), near)
        test_weights = weigh(weight, Neighbors(z_test, near_test), z).double().numpy()
        results = {name: local_global_consistency(W, y, len(data.classes), ALPHA, tolerance=TOLERANCE)}
        results |= {f"{name}, smoothed {alpha}": smooth(W, p, y, alpha) for alpha in SMOOTHING}
        for label, F in results.items():
            F_test = np.einsum("nk,nkc->nc", test_weights, F[near_test.numpy()])
            records.append(record(label, F.argmax(1), F_test.argmax(1)))
    return records


def main() -> None:
    """Measure what is not recorded yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--methods", default="supervised,mean_teacher,fixmatch,lpdssl,learned_graph")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=4e12, help="floating-point operations of a training")
    parser.add_argument("--n", type=int, default=60_000, help="training images")
    parser.add_argument("--out", default="", help="file of JSON lines; what it holds is not measured again")
    options = parser.parse_args()
    data = load_dataset(options.data)
    key = {"data": data.name, "labels": options.labels, "budget": options.budget}
    runs = [run for run in read_runs(options.out) if key.items() <= run.items()]
    for seed in range(options.first_seed, options.first_seed + options.splits):
        for method in options.methods.split(","):
            if not any((run["method"], run["seed"]) == (method, seed) for run in runs):
                found = measure(method, data, options.labels, seed, options.budget, options.n)
                record_runs(options.out, *found)
                runs += found
    rows = []
    for method in options.methods.split(","):
        for weights in dict.fromkeys(run["weights"] for run in runs):
            held = [run for run in runs if (run["method"], run["weights"]) == (method, weights)]
            if held:
                errors = [mean_and_spread([run[part] for run in held]) for part in ("train", "test")]
                rows.append([method, weights, str(len(held)), *errors])
    show(["method", "predictions by", "splits", "error of training images %", "test error %"], rows)


if __name__ == "__main__":
    main()
