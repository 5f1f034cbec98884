"""Filters and sort orders of items. They are computed on arrays, so that 100,000 items take milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from samekind.errors import RequestError
from samekind.server.inference.predictions import Predictions
from samekind.server.store.batches import ItemStates

Ids = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Sort = Literal["margin", "entropy", "confidence", "disagreement", "differs", "path", "diverse", "random", "audit", "newest"]
StatusFilter = Literal["all", "unlabelled", "labelled", "skipped", "differs", "changed"]
SORTS: tuple[Sort, ...] = get_args(Sort)
STATUS_FILTERS: tuple[StatusFilter, ...] = get_args(StatusFilter)
BASELINE_SORTS: tuple[Sort, ...] = ("diverse", "path", "random", "newest")  # sort orders that need no model


@dataclass(frozen=True)
class ItemFilter:
    """Conditions on items. An item must fulfil all of them."""

    status: StatusFilter = "all"
    pred: int | None = None
    label: int | None = None
    conf_min: float = 0.0
    conf_max: float = 1.0
    path_words: str = ""  # words that must all occur in the path of the item


@dataclass(frozen=True)
class ItemTable:
    """Data by which items are filtered and sorted, with one entry for each item. Functions compute their arrays when needed."""

    predictions: Predictions
    previous: Predictions | None
    states: ItemStates
    folded_names: Callable[[], list[str]]
    disagreement: Callable[[], Floats | None] = lambda: None
    last_events: Callable[[], npt.NDArray[np.int64] | None] = lambda: None


def rank_items(table: ItemTable, where: ItemFilter, sort: Sort | None, *, descending: bool = False, seed: int = 0) -> Ids:
    """Return the ids of the items that pass the filter, in the given sort order; ascending, the most uncertain come first."""
    predictions, states = table.predictions, table.states
    if sort is None:
        sort = "margin" if predictions.trained else "diverse"
    chosen = np.flatnonzero(_mask(table, where))
    if not predictions.trained and sort not in BASELINE_SORTS:
        raise RequestError(409, f"There is no model yet to sort by {sort}. Sort by one of: {', '.join(BASELINE_SORTS)}.")
    if sort == "audit":  # an audit needs a random sample, so items that were labelled for another reason are left out
        chosen = chosen[(states.status[chosen] == 0) | states.audit[chosen]]
    values = _sort_values(table, sort, seed)
    ranked = chosen if values is None else chosen[np.argsort(values[chosen], kind="stable")]
    if descending:
        ranked = ranked[::-1]
    return np.ascontiguousarray(ranked.astype("<u4"))


def _mask(table: ItemTable, where: ItemFilter) -> npt.NDArray[np.bool_]:
    predictions, states = table.predictions, table.states
    keep = _has_status(table, where.status)
    if where.pred is not None:
        keep &= predictions.pred == where.pred
    if where.label is not None:
        keep &= (states.status == 1) & (states.class_id == where.label)
    if where.conf_min > 0.0:
        keep &= predictions.confidence >= where.conf_min
    if where.conf_max < 1.0:
        keep &= predictions.confidence <= where.conf_max
    for word in where.path_words.casefold().split():
        keep &= np.fromiter((word in name for name in table.folded_names()), bool, len(predictions))
    return keep


def _has_status(table: ItemTable, status: StatusFilter) -> npt.NDArray[np.bool_]:
    predictions, states = table.predictions, table.states
    match status:
        case "unlabelled" | "labelled" | "skipped":
            return np.asarray(states.status == ("unlabelled", "labelled", "skipped").index(status))
        case "differs":
            return np.asarray((states.status == 1) & (states.class_id != predictions.pred) & (predictions.pred >= 0))
        case "changed":
            return changed_predictions(predictions, table.previous)
    return np.ones(len(predictions), dtype=bool)


def _sort_values(table: ItemTable, sort: Sort, seed: int) -> npt.NDArray[Any] | None:
    """Return the values by which items are sorted, ascending; None for the order of ids, which is the order of paths."""
    predictions = table.predictions
    match sort:
        case "margin":
            return predictions.margin
        case "entropy":
            return -predictions.entropy
        case "confidence":
            return predictions.confidence
        case "disagreement":
            disagreement = table.disagreement()
            if disagreement is None:
                raise RequestError(503, "Disagreement is still being computed. Try again in a while, or sort by margin.")
            return -disagreement
        case "differs":
            return _label_probability(predictions, table.states)
        # two different orders, because the first items of "random" were already shown with their predictions
        case "random" | "audit":
            return np.random.default_rng([seed, int(sort == "audit")]).permutation(len(predictions))
        case "diverse":
            return predictions.diversity_rank(seed)
        case "newest":
            last_events = table.last_events()
            return None if last_events is None else -last_events
    return None


def changed_predictions(predictions: Predictions, previous: Predictions | None) -> npt.NDArray[np.bool_]:
    """Return for each item whether its predicted class differs from that of the previous model."""
    changed = np.zeros(len(predictions), dtype=bool)
    if previous is not None:
        n = min(predictions.n_predicted, previous.n_predicted)
        changed[:n] = predictions.pred[:n] != previous.pred[:n]
    return changed


def _label_probability(predictions: Predictions, states: ItemStates) -> Floats:
    """Return the predicted probability of each item's label. Unlabelled items get 2, so that they come last."""
    column = {c: k for k, c in enumerate(predictions.class_ids)}
    values = np.full(len(predictions), 2.0, dtype=np.float32)
    for item in np.flatnonzero(states.status == 1):
        place = column.get(int(states.class_id[item]))
        values[item] = 1.0 if place is None else predictions.f[item, place]
    return values
