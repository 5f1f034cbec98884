"""Which items, and in which order: filters and sorts on arrays, so that 100,000 items take milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import RequestError
from samekind.server.inference.predictions import Predictions
from samekind.server.store.label_store import ItemStates
from samekind.server.unlabelled_project import SORTS as BASELINE_SORTS

Ids = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
SORTS = "margin entropy confidence disagreement differs path diverse random audit newest".split()
STATUS = "all unlabelled labelled skipped differs changed".split()


def order(
    query: Mapping[str, Any],
    predictions: Predictions,
    states: ItemStates,
    names: list[str],
    *,
    disagreement: Floats | None = None,
    before: Predictions | None = None,
    seqs: npt.NDArray[np.int64] | None = None,
) -> Ids:
    """The ids that pass the filters of `query`, sorted as it says. `names` are in small letters."""
    states, names = states.first(len(predictions)), names[: len(predictions)]
    chosen = np.flatnonzero(_passing(query, predictions, states, names, before))
    sort = query.get("sort", "margin" if predictions.trained else "diverse")
    if not predictions.trained and sort not in BASELINE_SORTS:
        raise RequestError(409, f"There is no model yet to sort by {sort}. Sort by one of: {', '.join(BASELINE_SORTS)}.")
    if sort == "audit":  # only what nobody has looked at for another reason
        chosen = chosen[(states.status[chosen] == 0) | states.audit[chosen]]
    values = _values(sort, query, predictions, states, disagreement, seqs)
    ranked = chosen if values is None else chosen[np.argsort(values[chosen], kind="stable")]
    if query.get("dir") == "desc":
        ranked = ranked[::-1]
    return np.ascontiguousarray(ranked.astype("<u4"))


def _passing(
    query: Mapping[str, Any], predictions: Predictions, states: ItemStates, names: list[str], before: Predictions | None
) -> npt.NDArray[np.bool_]:
    keep = _of_status(query.get("status", "all"), predictions, states, before)
    if "pred" in query:
        keep &= predictions.pred == query["pred"]
    if "label" in query:
        keep &= (states.status == 1) & (states.class_id == query["label"])
    if query.get("conf_min", 0.0) > 0.0:
        keep &= predictions.confidence >= query["conf_min"]
    if query.get("conf_max", 1.0) < 1.0:
        keep &= predictions.confidence <= query["conf_max"]
    for word in query.get("q", "").casefold().split():
        keep &= np.fromiter((word in name for name in names), bool, len(names))
    return keep


def _of_status(status: str, predictions: Predictions, states: ItemStates, before: Predictions | None) -> npt.NDArray[np.bool_]:
    match status:
        case "unlabelled" | "labelled" | "skipped":
            return np.asarray(states.status == ("unlabelled", "labelled", "skipped").index(status))
        case "differs":
            return np.asarray((states.status == 1) & (states.class_id != predictions.pred) & (predictions.pred >= 0))
        case "changed":
            return changed(predictions, before)
    return np.ones(len(predictions), dtype=bool)


def _values(
    sort: str,
    query: Mapping[str, Any],
    predictions: Predictions,
    states: ItemStates,
    disagreement: Floats | None,
    seqs: npt.NDArray[np.int64] | None,
) -> npt.NDArray[Any] | None:
    """What is sorted by, smallest first: the most doubtful. None: by path, which is the order of ids."""
    match sort:
        case "margin":
            return predictions.margin
        case "entropy":
            return -predictions.entropy
        case "confidence":
            return predictions.confidence
        case "disagreement":
            if disagreement is None:
                raise RequestError(503, "Neighbours are still being compared. Try again in a while, or sort by margin.")
            return -disagreement
        case "differs":
            return _against_label(predictions, states)
        case "random" | "audit":
            return np.random.default_rng(query.get("seed", 0)).permutation(len(predictions))
        case "diverse":
            return predictions.spread(query.get("seed", 0))
        case "newest":
            return None if seqs is None else -seqs
    return None


def changed(predictions: Predictions, before: Predictions | None) -> npt.NDArray[np.bool_]:
    """Which items the model in use sees otherwise than the one before it."""
    if before is None:
        return np.zeros(len(predictions), dtype=bool)
    n = min(predictions.n_known, before.n_known)
    otherwise = np.zeros(len(predictions), dtype=bool)
    otherwise[:n] = predictions.pred[:n] != before.pred[:n]
    return otherwise


def _against_label(predictions: Predictions, states: ItemStates) -> Floats:
    """How probable the model finds the label that an item has; unlabelled items come last."""
    column = {c: k for k, c in enumerate(predictions.class_ids)}
    values = np.full(len(predictions), 2.0, dtype=np.float32)
    for item in np.flatnonzero(states.status == 1):
        place = column.get(int(states.class_id[item]))
        values[item] = 1.0 if place is None else predictions.f[item, place]
    return values
