"""Text encoders by name: "use", "minilm", "tfidf", "st:NAME_OR_FOLDER", or several, whose features are concatenated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samekind.errors import SettingError, did_you_mean
from samekind.nets.text.sentence_models import FunctionEncoder, UniversalSentenceEncoder
from samekind.nets.text.sentence_transformer import PREFIX, SentenceTransformerEncoder, has_minilm, minilm_encoder
from samekind.nets.text.text_encoder import State, TextEncoder, TextsSideBySide
from samekind.nets.text.tfidf_encoder import TfidfEncoder

TEXT_ENCODERS: dict[str, Callable[[], TextEncoder]] = {
    "use": UniversalSentenceEncoder,
    "minilm": minilm_encoder,
    "tfidf": TfidfEncoder,
}
PREFERRED = "use"  # encoder that is used as long as there are no labels that decide
FORMS = (
    "'auto', a name such as 'use', 'minilm', 'tfidf' or 'st:NAME_OR_FOLDER', a function of a list of strings, or a list of them"
)


def resolve_text_encoder(encoder: Any) -> TextEncoder:
    """Return a text encoder for a name, a list of names, a function of a list of strings, or an object with a method
    `encode`.
    """
    if isinstance(encoder, TextEncoder):
        return encoder
    if isinstance(encoder, str):
        return build_text_encoder(encoder)
    if isinstance(encoder, (list, tuple)) and encoder:
        parts = [resolve_text_encoder(one) for one in encoder]
        return parts[0] if len(parts) == 1 else TextsSideBySide(parts)
    function = getattr(encoder, "encode", encoder)
    if not callable(function):
        raise SettingError(f"encoder is {encoder!r}, and X holds texts; expected {FORMS}")
    return FunctionEncoder(function)


def build_text_encoder(name: str) -> TextEncoder:
    """Return the text encoder for a name, or for several names with commas; raise SettingError for an unknown name."""
    parts = [_by_name(one.strip()) for one in name.split(",")]
    return parts[0] if len(parts) == 1 else TextsSideBySide(parts)


def restore_text_encoder(name: str, state: State) -> TextEncoder:
    """Return the fitted text encoder of a saved model, from its name and the arrays that `TextEncoder.state` returned."""
    names = name.split(",")
    if len(names) == 1:
        return TfidfEncoder.restored(state) if name == TfidfEncoder.name else build_text_encoder(name)
    return TextsSideBySide([restore_text_encoder(one, _own(state, f"{at}.")) for at, one in enumerate(names)])


def _own(state: State, prefix: str) -> State:
    return {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}


def is_text_encoder(name: str) -> bool:
    """Return whether this name, or each of several names with commas, is that of a text encoder."""
    return all(one.strip() in TEXT_ENCODERS or one.strip().startswith(PREFIX) for one in name.split(","))


def installed_text_encoders() -> list[str]:
    """Return the names of the encoders from which encoder="auto" chooses, the preferred one first."""
    return [*(["minilm,use"] if has_minilm() else []), "use", "tfidf"]


def _by_name(name: str) -> TextEncoder:
    if name.startswith(PREFIX):
        return SentenceTransformerEncoder(name.removeprefix(PREFIX))
    if name not in TEXT_ENCODERS:
        raise SettingError(f"there is no text encoder {name!r}; {did_you_mean(name, TEXT_ENCODERS)}")
    return TEXT_ENCODERS[name]()
