"""Ensembles of decision trees on the labelled samples. scikit-learn grows the trees, and they are kept as plain arrays.

So a saved model holds numbers only, and new samples get the same predictions after it was loaded.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from samekind.graphs.linear_systems import Floats, Labels

TreeModel = Literal["extra_trees", "bagged_trees", "boosted_trees"]
TREE_MODELS: tuple[TreeModel, ...] = ("extra_trees", "bagged_trees", "boosted_trees")
N_TREES = 100  # number of trees in a forest
FOLD_TREES = 25  # number of trees in a forest that only predicts held-out labels
N_ROUNDS = 50  # number of rounds of boosting
BOOSTED_DEPTH = 3
MAX_LEAVES = 500  # with many labels, a leaf of a tree holds at least 1/MAX_LEAVES of them
MAX_SAMPLES = 5000  # largest number of labelled samples that the trees are grown on
MAX_COLUMNS = 256  # each split of a tree chooses among at most this number of random columns
CHUNK_VALUES = 4_000_000  # largest number of array values in one batch of predictions


class Trees(NamedTuple):
    """k trees with up to p nodes each. Node 0 of a tree is its root.

    A sample x goes from node j to `children`[j, 0] if x[`feature`[j]] <= `threshold`[j], and else to `children`[j, 1]. Both
    children of a leaf are the leaf itself. The values of the leaves of all trees and `start` are summed. For a forest the sum
    is the class probabilities; for boosted trees it is their logarithms, up to a constant.
    """

    feature: Tensor  # (k, p)
    threshold: Tensor  # (k, p)
    children: Tensor  # (k, p, 2)
    value: Tensor  # (k, p, C)
    start: Tensor  # (C,)

    def scores(self, X: Tensor) -> Tensor:
        """Return the sum of the values of the leaves (n, C) that the samples X (n, d) reach."""
        step = max(1, CHUNK_VALUES // max(X.shape[1], len(self.feature) * len(self.start)))
        found = [self._scores(X[start : start + step]) for start in range(0, len(X), step)]
        return torch.cat(found) + self.start if found else self.start.repeat(0, 1)

    def _scores(self, X: Tensor) -> Tensor:
        X = X.float().double()  # scikit-learn compares values in single precision
        k, p = self.feature.shape
        first = p * torch.arange(k)  # the nodes of all trees are numbered one after the other
        feature, threshold = self.feature.long().flatten(), self.threshold.flatten()
        children = (self.children.long() + first[:, None, None]).flatten()
        node = first.repeat(len(X), 1)
        while True:
            split = X.gather(1, feature[node]) > threshold[node]
            following = children[2 * node + split]
            if torch.equal(following, node):
                return embedding_bag(node, self.value.flatten(0, 1), mode="sum")
            node = following


def tree_probabilities(name: TreeModel, trees: Trees, X: Tensor) -> Tensor:
    """Return the class probabilities (n, C) of samples X (n, d)."""
    scores = trees.scores(X)
    return torch.softmax(scores, dim=1) if name == "boosted_trees" else scores


def fit_trees(
    name: TreeModel, X: Floats, y: Labels, sample_weight: Floats, n_classes: int, seed: int, n_trees: int = N_TREES
) -> Trees:
    """Return trees for samples X (m, d) with the labels y (m,). A class without a sample gets the probability 0.

    A forest has `n_trees` trees. With more than MAX_SAMPLES labels m, every s-th sample is used, s = ceil(m / MAX_SAMPLES).
    """
    some = slice(None, None, -(-len(y) // MAX_SAMPLES))
    X, y, sample_weight = X[some], y[some], sample_weight[some]
    present = np.unique(y)
    if len(present) == 1:
        return _constant(name, present, n_classes)
    model = _new_model(name, X.shape, seed, n_trees).fit(X, y, sample_weight=sample_weight)
    if name == "boosted_trees":
        return _boosted(model, X, present, n_classes)
    grown = [(one.tree_, np.asarray(one.tree_.value[:, 0, :])) for one in model.estimators_]
    fractions = [(tree, value / (value.sum(axis=1, keepdims=True) * len(grown))) for tree, value in grown]
    return _stacked(fractions, [present] * len(fractions), np.zeros(n_classes))


def _new_model(name: TreeModel, shape: tuple[int, ...], seed: int, n_trees: int) -> Any:
    # imported here: it loads packages that other methods do not need
    from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier

    smallest, tried = 1 + shape[0] // MAX_LEAVES, None if shape[1] <= MAX_COLUMNS else MAX_COLUMNS
    if name == "boosted_trees":
        leaf = max(2, smallest)
        return GradientBoostingClassifier(
            n_estimators=N_ROUNDS, max_depth=BOOSTED_DEPTH, min_samples_leaf=leaf, max_features=tried, random_state=seed
        )
    forest = ExtraTreesClassifier if name == "extra_trees" else RandomForestClassifier
    return forest(n_trees, max_features=tried, bootstrap=True, min_samples_leaf=smallest, random_state=seed)


def _boosted(model: Any, X: Floats, present: Labels, n_classes: int) -> Trees:
    """Return the trees of gradient boosting; a round has one tree for each class, or one tree if there are two classes."""
    rounds = [(one.tree_, model.learning_rate * one.tree_.value[:, 0, :]) for one in model.estimators_.ravel()]
    if len(present) == 2:  # one tree for the log-odds of the second class
        grown = [(tree, np.concatenate([-value, value], axis=1) / 2) for tree, value in rounds]
        columns = [present] * len(grown)
    else:
        grown, columns = rounds, [present[[i % len(present)]] for i in range(len(rounds))]
    start = np.full(n_classes, -np.inf)
    start[present] = 0.0
    trees = _stacked(grown, columns, start)
    decision = np.asarray(model.decision_function(X[:1]), dtype=np.float64)[0]
    raw = np.array([-decision, decision]) / 2 if len(present) == 2 else decision
    start[present] = raw - trees.scores(torch.from_numpy(X[:1]))[0].numpy()[present]
    return trees._replace(start=torch.from_numpy(start))


def _stacked(grown: list[tuple[Any, Floats]], columns: list[Labels], start: Floats) -> Trees:
    """Return trees of scikit-learn as arrays. The values (p, c) of the nodes of a tree belong to the classes `columns` (c,)."""
    k, p, C = len(grown), max(tree.node_count for tree, _ in grown), len(start)
    feature, threshold, value = np.zeros((k, p)), np.zeros((k, p)), np.zeros((k, p, C))
    children = np.repeat(np.arange(p, dtype=np.float64)[None, :, None], k, axis=0).repeat(2, axis=2)
    for at, ((tree, values), own) in enumerate(zip(grown, columns, strict=True)):
        inner = np.flatnonzero(tree.children_left >= 0)
        feature[at, inner], threshold[at, inner] = tree.feature[inner], tree.threshold[inner]
        children[at, inner, 0], children[at, inner, 1] = tree.children_left[inner], tree.children_right[inner]
        value[at, : tree.node_count, own] = values.T
    return Trees(*map(torch.from_numpy, (feature, threshold, children, value, start)))


def _constant(name: TreeModel, present: Labels, n_classes: int) -> Trees:
    """Return a single leaf, for labels of one class only."""
    start = np.full(n_classes, -np.inf if name == "boosted_trees" else 0.0)
    start[present] = 0.0 if name == "boosted_trees" else 1.0
    leaf = torch.zeros((1, 1), dtype=torch.float64)
    return Trees(leaf, leaf, leaf[..., None].repeat(1, 1, 2), leaf[..., None].repeat(1, 1, n_classes), torch.from_numpy(start))
