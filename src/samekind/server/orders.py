"""Which items, and in which order: filters and sorts on arrays, so that 100,000 items take milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import RequestError
from samekind.server.answers import Answers
from samekind.server.piles import SORTS as UNTRAINED_SORTS
from samekind.server.store import States

Ids = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
SORTS = "margin entropy confidence disagreement differs path diverse random audit newest".split()
STATUS = "all unlabelled labelled skipped differs changed".split()


def order(
    query: Mapping[str, Any],
    answers: Answers,
    states: States,
    names: list[str],
    *,
    disagreement: Floats | None = None,
    before: Answers | None = None,
    seqs: npt.NDArray[np.int64] | None = None,
) -> Ids:
    """The ids that pass the filters of `query`, sorted as it says. `names` are in small letters."""
    states, names = states.first(len(answers)), names[: len(answers)]
    chosen = np.flatnonzero(_passing(query, answers, states, names, before))
    sort = query.get("sort", "margin" if answers.trained else "diverse")
    if not answers.trained and sort not in UNTRAINED_SORTS:
        raise RequestError(409, f"There is no model yet to sort by {sort}. Sort by one of: {', '.join(UNTRAINED_SORTS)}.")
    if sort == "audit":  # only what nobody has looked at for another reason
        chosen = chosen[(states.status[chosen] == 0) | states.audit[chosen]]
    values = _values(sort, query, answers, states, disagreement, seqs)
    ranked = chosen if values is None else chosen[np.argsort(values[chosen], kind="stable")]
    if query.get("dir") == "desc":
        ranked = ranked[::-1]
    return np.ascontiguousarray(ranked.astype("<u4"))


def _passing(
    query: Mapping[str, Any], answers: Answers, states: States, names: list[str], before: Answers | None
) -> npt.NDArray[np.bool_]:
    keep = _of_status(query.get("status", "all"), answers, states, before)
    if "pred" in query:
        keep &= answers.pred == query["pred"]
    if "label" in query:
        keep &= (states.status == 1) & (states.class_id == query["label"])
    if query.get("conf_min", 0.0) > 0.0:
        keep &= answers.confidence >= query["conf_min"]
    if query.get("conf_max", 1.0) < 1.0:
        keep &= answers.confidence <= query["conf_max"]
    for word in query.get("q", "").casefold().split():
        keep &= np.fromiter((word in name for name in names), bool, len(names))
    return keep


def _of_status(status: str, answers: Answers, states: States, before: Answers | None) -> npt.NDArray[np.bool_]:
    match status:
        case "unlabelled" | "labelled" | "skipped":
            return np.asarray(states.status == ("unlabelled", "labelled", "skipped").index(status))
        case "differs":
            return np.asarray((states.status == 1) & (states.class_id != answers.pred) & (answers.pred >= 0))
        case "changed":
            return changed(answers, before)
    return np.ones(len(answers), dtype=bool)


def _values(
    sort: str,
    query: Mapping[str, Any],
    answers: Answers,
    states: States,
    disagreement: Floats | None,
    seqs: npt.NDArray[np.int64] | None,
) -> npt.NDArray[Any] | None:
    """What is sorted by, smallest first: the most doubtful. None: by path, which is the order of ids."""
    match sort:
        case "margin":
            return answers.margin
        case "entropy":
            return -answers.entropy
        case "confidence":
            return answers.confidence
        case "disagreement":
            if disagreement is None:
                raise RequestError(503, "Neighbours are still being compared. Try again in a while, or sort by margin.")
            return -disagreement
        case "differs":
            return _against_label(answers, states)
        case "random" | "audit":
            return np.random.default_rng(query.get("seed", 0)).permutation(len(answers))
        case "diverse":
            return answers.spread(query.get("seed", 0))
        case "newest":
            return None if seqs is None else -seqs
    return None


def changed(answers: Answers, before: Answers | None) -> npt.NDArray[np.bool_]:
    """Which items the model in use sees otherwise than the one before it."""
    if before is None:
        return np.zeros(len(answers), dtype=bool)
    n = min(answers.n_known, before.n_known)
    otherwise = np.zeros(len(answers), dtype=bool)
    otherwise[:n] = answers.pred[:n] != before.pred[:n]
    return otherwise


def _against_label(answers: Answers, states: States) -> Floats:
    """How probable the model finds the label that an item has; unlabelled items come last."""
    column = {c: k for k, c in enumerate(answers.class_ids)}
    values = np.full(len(answers), 2.0, dtype=np.float32)
    for item in np.flatnonzero(states.status == 1):
        place = column.get(int(states.class_id[item]))
        values[item] = 1.0 if place is None else answers.f[item, place]
    return values
