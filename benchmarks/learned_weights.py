"""Errors of label propagation over nearest-neighbour edges with fixed and with learned weights, on development datasets.

    python benchmarks/learned_weights.py
    python benchmarks/learned_weights.py --sets ring,vehicle --labels 2,5 --draws 3

All rows smooth the class probabilities of the ensemble, with the given labels in place, over the same edges: the 10 nearest
neighbours by the distance of standardized columns. Only the weights W of the edges differ. Phi is a network on pairs of
samples. It is trained on the edges whose two samples are labelled or among the half of which the ensemble is surest, to tell
whether both have one class. W is its output. "ensemble" is the default for vectors, without smoothing.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from samekind.stacking.ensemble_fit import EnsembleFit
from samekind.stacking.gaussian_mixtures import whiten
from samekind.stacking.smoothing import Smoother, with_labels
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble

from bench_tables import show, show_labels
from datasets import DEVELOPMENT

GRAPH = 1  # the standardized graph among the graphs of the ensemble
COMPONENTS = 20  # principal components that Phi sees
STEPS, BATCH, HIDDEN = 200, 256, 64
FLOOR = 1e-3  # least weight of an edge, so that no sample loses all of its edges
ENSEMBLE = "ensemble"


def edges_of(fit: EnsembleFit) -> tuple[Any, Any, Any]:
    """Return the first and the second sample of each edge, and its self-tuning weight."""
    S = fit.smoothers["standardized"].S.tocoo()
    i, j = S.coords
    inverse_root = fit.smoothers["standardized"].inverse_root
    return i, j, S.data / (inverse_root[i] * inverse_root[j])


def pair_features(W: Any, i: Any, j: Any) -> torch.Tensor:
    """Return the inputs of Phi for pairs: absolute differences and products of whitened components, the same for (j, i)."""
    return torch.from_numpy(np.concatenate([np.abs(W[i] - W[j]), W[i] * W[j]], axis=1)).float()


def learned(W: Any, i: Any, j: Any, classes: Any, sure: Any, seed: int) -> Any:
    """Return the output of Phi for each edge (i, j), trained on the edges between two sure samples."""
    torch.manual_seed(seed)
    known = np.flatnonzero(sure[i] & sure[j])
    same = torch.from_numpy(classes[i[known]] == classes[j[known]]).float()
    if len(known) == 0 or same.min() == same.max():
        return np.ones(len(i))
    inputs = pair_features(W, i, j)
    phi = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
    optimizer = torch.optim.Adam(phi.parameters(), lr=0.01, weight_decay=1e-3)
    weight = torch.where(same > 0, 0.5 / same.mean(), 0.5 / (1 - same).mean())  # both kinds of pairs count equally
    for _ in range(STEPS):
        chosen = torch.randint(len(known), (min(BATCH, len(known)),))
        logits = phi(inputs[known[chosen.numpy()]])[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, same[chosen], weight[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        return torch.sigmoid(phi(inputs)[:, 0]).double().numpy()


def one_draw(X: Any, shown: Any, alpha: float, seed: int) -> dict[str, Any]:
    """Return the class probabilities (n, C) by each kind of weights."""
    index = np.flatnonzero(shown >= 0)
    fit = fit_stacked_ensemble(torch.from_numpy(np.asarray(X, dtype=np.float64)), shown, int(shown.max()) + 1, seed=seed)
    P = fit.probabilities
    i, j, tuned = edges_of(fit)
    points = fit.graphs[GRAPH].points.numpy()
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    cosine = np.maximum((unit[i] * unit[j]).sum(axis=1), 0.0)
    sure = P.max(axis=1) >= np.median(P.max(axis=1))
    sure[index] = True
    classes = P.argmax(axis=1)
    classes[index] = shown[index]
    phi = learned(whiten(points)[:, :COMPONENTS], i, j, classes, sure, seed)
    weights = {"W = 1": np.ones(len(i)), "cosine": cosine, "cosine^3": cosine**3, "self-tuning": tuned}
    weights |= {"Phi": phi, "Phi x self-tuning": phi * tuned}
    fixed = with_labels(P, index, shown[index])
    found = {ENSEMBLE: P}
    for name, w in weights.items():
        graph = csr_array((np.maximum(w, FLOOR * w.max()), (i, j)), shape=(len(X), len(X)))
        found[name] = Smoother(csr_array((graph + graph.T) / 2)).smooth(fixed, alpha)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(name for name in DEVELOPMENT if name != "cifar10-lite0-dev"))
    parser.add_argument("--labels", default="2,5", help="labels per class, separated by commas")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--alpha", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=1500, help="samples of each dataset")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    errors: dict[tuple[str, str], list[float]] = {}
    better: dict[tuple[str, str], int] = {}
    for name in args.sets.split(","):
        X, y = DEVELOPMENT[name]()
        part = np.random.default_rng(0).permutation(len(y))[: args.most]
        X, y = X[part], np.unique(y[part], return_inverse=True)[1]
        for labels in args.labels.split(","):
            for seed in range(1000, 1000 + args.draws):
                shown = show_labels(y, labels, seed)
                found = one_draw(X, shown, args.alpha, seed)
                wrong = {kind: 100 * float(np.mean(P.argmax(axis=1)[shown < 0] != y[shown < 0])) for kind, P in found.items()}
                for kind, error in wrong.items():
                    errors.setdefault((kind, labels), []).append(error)
                    better[kind, labels] = better.get((kind, labels), 0) + (error < wrong[ENSEMBLE])
    kinds = list(dict.fromkeys(kind for kind, _ in errors))
    counts = args.labels.split(",")
    header = [
        "weights",
        *(f"{n} labels: error %" for n in counts),
        *(f"{n} labels: draws better than the ensemble" for n in counts),
    ]
    rows = []
    for kind in kinds:
        means = [f"{np.mean(errors[kind, n]):.2f}" for n in counts]
        rows.append([kind, *means, *(f"{better[kind, n]} of {len(errors[kind, n])}" for n in counts)])
    show(header, rows)


if __name__ == "__main__":
    main()
