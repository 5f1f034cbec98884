"""Route for word effects: how each word of a text changes the probability of its predicted class."""

from __future__ import annotations

from typing_extensions import TypedDict

from samekind.errors import RequestError
from samekind.server.inference.occlusion import word_effects
from samekind.server.routing import Router
from samekind.server.schemas import PathId
from samekind.server.session import Session
from samekind.server.summaries import require_items

router = Router()


class WordEffectSummary(TypedDict):
    """One or several words, as positions in the text (Unicode characters), and the probability without these words."""

    start: int
    end: int
    without: float


class WordEffects(TypedDict):
    """The predicted class of a text, its probability, and the probabilities without each of its words."""

    class_id: int
    probability: float
    effects: list[WordEffectSummary]
    model_version: int


@router.get("/api/items/{id}/words", "What the probability of the predicted class of a text becomes without each word")
def show_word_effects(session: Session, id: PathId) -> WordEffects:
    model = session.active_model
    predictions = model.predictions
    if session.texts is None:
        raise RequestError(409, "The items of this run are no texts.")
    model.require_trained()
    require_items(predictions, [id])
    class_id = int(predictions.pred[id])
    fitted = model.fitted
    probability, effects = word_effects(
        lambda texts: predictions.merge_columns(fitted.predict_proba(texts)),
        session.texts.full(id),
        predictions.class_ids.index(class_id),
    )
    return {
        "class_id": class_id,
        "probability": round(probability, 5),
        "effects": [{"start": one.start, "end": one.end, "without": round(one.without, 5)} for one in effects],
        "model_version": predictions.version,
    }
