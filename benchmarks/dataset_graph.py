"""Compare a graph over the dataset with other methods at equal compute, and measure what each of its ingredients changes.

    python benchmarks/dataset_graph.py --rows ablation --out results/dataset_graph.jsonl
    python benchmarks/dataset_graph.py --rows comparison --first-seed 0 --splits 10 --out results/dataset_graph.jsonl
    python benchmarks/dataset_graph.py --data cifar10 --labels 1000 --budget 3e12 --first-seed 0 --splits 5 \
        --out results/dataset_graph.jsonl

Each row trains on the same labels with the same budget of floating-point operations, in which propagations and forward passes
between steps count. The errors are those of the network alone; of label propagation at the end over its features, where a test
image takes the weighted mean of its 10 nearest training images; and of the mean of both, which the estimator predicts with
`propagate=True`. The second table has the paired differences of one row from the others, with 95 % intervals. Splits from seed
1000 on are for development; reported splits are smaller.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from samekind.bench.grid import RunSpec
from samekind.bench.reporting.compare import paired_difference
from samekind.bench.running.runner import steps_in_budget
from samekind.data.hub.loaders import BenchmarkData, load_dataset
from samekind.data.splits import draw_split
from samekind.evaluation.metrics import error_rate, ranking_metrics
from samekind.fitting.fit_model import ModelFit, fit_model
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.propagation_at_end import N_NEIGHBORS, propagate_labels
from samekind.methods.predictors import DeepPredictor, PropagatedPredictor
from samekind.search.pair_scores import make_pair_score
from samekind.search.pairwise import pairwise_log_odds
from samekind.training.determinism import single_thread

from bench_tables import mean_and_spread, read_runs, record_runs, show

Row = tuple[str, dict[str, Any]]  # method and settings
SMALL: dict[str, Any] = {"bank_size": 2000}  # the ablation has a smaller bank than the default, because its trainings are short
LEARNED: dict[str, Any] = {**SMALL, "edge_weights": "learned"}
COMPARISON: dict[str, Row] = {
    "mean_teacher": ("mean_teacher", {}),
    "fixmatch": ("fixmatch", {}),
    "lpdssl": ("lpdssl", {}),
    "learned_graph": ("learned_graph", {}),
    "dataset_graph": ("dataset_graph", {}),
    "Phi random": ("dataset_graph", {"edge_weights": "learned", "pairs": "random"}),
}
ABLATION: dict[str, Row] = {
    "mean_teacher": ("mean_teacher", {}),
    "fixmatch": ("fixmatch", {}),
    "lpdssl": ("lpdssl", {}),
    "learned_graph": ("learned_graph", {}),
    "bank of 2000": ("dataset_graph", SMALL),
    "bank of 4000": ("dataset_graph", {"bank_size": 4000}),
    "fixmatch+dataset_graph": ("fixmatch+dataset_graph", {**SMALL, "lambda_teacher": 0.0}),
    "no bank": ("dataset_graph", {**SMALL, "lambda_bank": 0.0}),
    "no teacher term": ("dataset_graph", {**SMALL, "lambda_teacher": 0.0, "w_max": 0.0}),
    "squared distance": ("dataset_graph", {**SMALL, "lambda_teacher": 0.0}),
    "cosine": ("dataset_graph", {**SMALL, "edge_weights": "cosine"}),
    "Phi from propagated": ("dataset_graph", LEARNED),
    "Phi from the teacher": ("dataset_graph", {**LEARNED, "similarity_targets": "base"}),
    "Phi uniform edges": ("dataset_graph", {**SMALL, "lambda_similarity": 1.0}),
    "Phi random uniform edges": ("dataset_graph", {**SMALL, "lambda_similarity": 1.0, "pairs": "random"}),
    "Phi random pairs": ("dataset_graph", {**LEARNED, "pairs": "random"}),
    "Phi Laplacian": ("dataset_graph", {**LEARNED, "lambda_laplacian": 0.3}),
    "Phi random Laplacian": ("dataset_graph", {**LEARNED, "lambda_laplacian": 0.3, "pairs": "random"}),
}
ALL_ROWS = {**ABLATION, **COMPARISON}
ROWS = {"comparison": COMPARISON, "ablation": ABLATION}
# docs/design/image_training.md gives the reason for FixMatch's threshold on CIFAR-10
DATA_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {"cifar10": {"fixmatch": {"threshold": 0.8}}}
PREDICTIONS = ("network", "propagated", "mean")
TEST_IMAGES = 5000
QUERIES, K = 1000, 9  # test images that are compared in pairs, and the number of nearest ones in precision@9


def measure(row: Row, data: BenchmarkData, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Train one row on one split; return the errors of its three predictions, and its cost."""
    method, settings = row[0], {**DATA_SETTINGS.get(data.name, {}).get(row[0], {}), **row[1]}
    split = draw_split(data.y, options.labels, seed)
    chosen = np.union1d(split.labelled, np.random.default_rng(seed).permutation(len(data.y))[: options.n])
    x, y = data.x[chosen], split.y[chosen]
    labels = np.array([*data.classes, None], dtype=object)[y]
    fixed: dict[str, Any] = {"encoder": None}
    spec = RunSpec("dataset_graph", method, data.name, options.labels, method, seed, settings, fixed, options.budget)
    with single_thread(True):
        steps = steps_in_budget(spec, x, labels)
        run = FitOptions(method, settings=settings, random_state=seed, **fixed)
        fit = fit_model(x, labels, run, steps=steps, keep_training_set=False)
        errors = evaluate(fit.model, x, y, data.y[chosen], data) | precision(fit, data)
    cost = {name: fit.cost[name] for name in ("flops", "full_pass_flops", "cpu_seconds")}
    return {"split": split.record(), "steps": steps, "epochs": fit.epochs, **cost, **errors}


@torch.no_grad()
def evaluate(model: Any, x: Any, y: Any, truth: Any, data: BenchmarkData) -> dict[str, Any]:
    """Return the errors of the unlabelled training images and of the test images, for each of the three predictions."""
    z, z_test = (model.features(images).float().cpu() for images in (x, data.x_test[:TEST_IMAGES]))
    predictor = model.predictor.float().cpu()
    assert isinstance(predictor, DeepPredictor)
    F = torch.from_numpy(propagate_labels(z, y, len(data.classes))).float()
    graph = PropagatedPredictor.from_points(predictor, z, F, N_NEIGHBORS)
    train = {"network": predictor.probabilities(z), "propagated": F}
    test = {"network": predictor.probabilities(z_test), "propagated": graph.propagated(z_test)}
    unlabelled, errors = y < 0, {}
    for part, found, true in (("train", train, truth), ("test", test, data.y_test[:TEST_IMAGES])):
        found["mean"] = (found["network"] + found["propagated"]) / 2
        keep = unlabelled if part == "train" else slice(None)
        errors[part] = {name: error_rate(p.argmax(1).numpy()[keep], true[keep]) for name, p in found.items()}
    return errors


@torch.no_grad()
def precision(fit: ModelFit, data: BenchmarkData) -> dict[str, Any]:
    """Return precision@9 among test images, by a similarity network that weights edges and by the cosine of the features."""
    phi = getattr(fit.method, "ema_similarity", None)
    if phi is None:
        return {}
    z, y = fit.model.features(data.x_test[:QUERIES]).float().cpu(), data.y_test[:QUERIES]
    predictor, v = DeepPredictor(fit.method.student, phi).eval(), normalize(z, dim=1)
    scores = {"similarity network": pairwise_log_odds(make_pair_score(predictor), z, z), "cosine": v @ v.T}
    return {
        "precision": {name: ranking_metrics(one.numpy(), np.arange(len(y)), y, K).precision for name, one in scores.items()}
    }


def difference(runs: list[dict[str, Any]], ours: tuple[str, str], theirs: tuple[str, str], part: str) -> str:
    """Return the paired difference of the errors of two (row, prediction), over the splits that both rows have."""
    mine, others = ({run["seed"]: run[part][name] for run in runs if run["row"] == row} for row, name in (ours, theirs))
    return str(paired_difference([mine[seed] - others[seed] for seed in mine if seed in others]))


def print_tables(runs: list[dict[str, Any]], names: list[str], reference: str) -> None:
    """Print the errors of all rows, and the differences of the reference row from the other rows."""
    names = [name for name in names if any(run["row"] == name for run in runs)]
    rows = []
    for name in names:
        held = [run for run in runs if run["row"] == name]
        errors = [mean_and_spread([run["test"][prediction] for run in held]) for prediction in PREDICTIONS]
        train = mean_and_spread([run["train"]["mean"] for run in held])
        numbers = [f"{np.mean([run['steps'] for run in held]):.0f}", f"{np.mean([run['flops'] for run in held]) / 1e12:.2f}"]
        rows.append([name, str(len(held)), *numbers, *errors, train])
    show(["row", "splits", "steps", "TFLOP", *(f"test, {name}" for name in PREDICTIONS), "training images, mean"], rows)
    print()
    compared = [
        [name, *(difference(runs, (reference, ours), (name, theirs), "test") for ours, theirs in PAIRS)]
        for name in names
        if name != reference
    ]
    show([f"{reference} minus", *(f"{ours} - {theirs}" for ours, theirs in PAIRS)], compared)


PAIRS = (("network", "network"), ("propagated", "propagated"), ("mean", "mean"))


def main() -> None:
    """Measure what is not recorded yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="comparison", help="comparison, ablation, or names of rows")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=5e11, help="floating-point operations of a training")
    parser.add_argument("--n", type=int, default=5000, help="training images")
    parser.add_argument("--reference", default="dataset_graph")
    parser.add_argument("--out", default="", help="file of JSON lines; what it holds is not measured again")
    options = parser.parse_args()
    names = list(ROWS[options.rows]) if options.rows in ROWS else options.rows.split(",")
    data = load_dataset(options.data)
    key = {"data": data.name, "labels": options.labels, "budget": options.budget, "n": options.n}
    seeds = range(options.first_seed, options.first_seed + options.splits)
    runs = [run for run in read_runs(options.out) if key.items() <= run.items() and run["seed"] in seeds]
    for seed in seeds:
        for name in names:
            if not any((run["row"], run["seed"]) == (name, seed) for run in runs):
                settings = {"method": ALL_ROWS[name][0], "settings": ALL_ROWS[name][1]}
                run = {**key, "row": name, **settings, "seed": seed, **measure(ALL_ROWS[name], data, options, seed)}
                record_runs(options.out, run)
                runs.append(run)
    print_tables(runs, names, options.reference)


if __name__ == "__main__":
    main()
