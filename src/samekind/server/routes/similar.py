"""Route for similarity search: the items that are most similar to some items."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from samekind.server.routing import Router
from samekind.server.schemas import Fraction, ItemId, RequestModel
from samekind.server.session import Session
from samekind.server.summaries import require_items, round_log_odds

router = Router()


class SimilarRequest(RequestModel):
    """Request for a search: examples, counterexamples, and which items may be found."""

    ids: Annotated[list[ItemId], Field(min_length=1, max_length=500)]
    not_ids: Annotated[list[ItemId], Field(max_length=500, default_factory=list)]
    k: Annotated[int, Field(ge=1, le=500)] = 60
    only: Literal["all", "unlabelled", "labelled"] = "all"
    min_similarity: Fraction | None = None


class SimilarItem(TypedDict):
    """An item and its similarity to the examples.

    The log-odds of a learned similarity still differ where similarities are 1.
    """

    id: int
    similarity: float
    log_odds: float | None


class SimilarItems(TypedDict):
    """The most similar items. `exact` says whether all items were compared, and `metric` by which similarity."""

    results: list[SimilarItem]
    model_version: int
    exact: bool
    metric: str


@router.post(
    "/api/similar",
    "The most similar items: by the learned similarity, or before the first model by the cosine of baseline features",
)
def find_similar(session: Session, body: SimilarRequest) -> SimilarItems:
    model = session.active_model
    n = len(model.predictions)
    require_items(model.predictions, [*body.ids, *body.not_ids])
    status = session.store.states.first(n).status
    among = {"all": np.ones(n, dtype=bool), "unlabelled": status == 0, "labelled": status == 1}[body.only]
    found, exact = model.most_similar(body.ids, body.not_ids, among, body.k, body.min_similarity)
    return {
        "results": [{"id": item, "similarity": round(W, 5), "log_odds": round_log_odds(value)} for item, W, value in found],
        "model_version": model.predictions.version,
        "exact": exact,
        "metric": model.metric,
    }
