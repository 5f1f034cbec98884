"""TF-IDF with truncated SVD (latent semantic analysis): features of the texts' own words, without a pretrained model.

Terms are words in lower case, pairs of characters in scripts that have no spaces, and emoji.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.utils.extmath import randomized_svd

from samekind.errors import ModelFileError, SettingError
from samekind.nets.text.cleaning import clean_text
from samekind.nets.text.text_encoder import Floats, State, TextEncoder, hash_of

MAX_TERMS = 20_000  # the most frequent terms are kept
MIN_TEXTS = 2  # a term that occurs in fewer texts tells nothing about other texts
N_COMPONENTS = 200
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # Thai, Lao, Khmer, kana, Han, ...
TERM = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+|[\u2600-\u27bf\U0001f300-\U0001faff]")
NOT_SPACED = re.compile(rf"[{UNSPACED}]")


def terms_of(text: str) -> list[str]:
    """Return the terms of a clean text."""
    found: list[str] = []
    for term in TERM.findall(text.lower()):
        if NOT_SPACED.match(term) and len(term) > 1:
            found += [a + b for a, b in pairwise(term)]
        else:
            found.append(term)
    return found


class TfidfEncoder(TextEncoder):
    """Encoder: 1 + log of the counts of terms, times their inverse document frequency, in unit length, on SVD components."""

    name = "tfidf"

    def __init__(self, terms: Sequence[str] = (), idf: Floats | None = None, components: Floats | None = None) -> None:
        self.terms = tuple(terms)
        self.idf = np.empty(0, np.float32) if idf is None else idf
        self.components = components  # (terms, k); None: not fitted
        self._position = {term: at for at, term in enumerate(self.terms)}

    def fitted(self, texts: Sequence[str]) -> TfidfEncoder:
        """Return the encoder with the terms and the components of these texts."""
        counts = [Counter(terms_of(clean_text(text))) for text in texts]
        in_texts = Counter(term for count in counts for term in count)
        kept = [term for term, n in in_texts.items() if n >= MIN_TEXTS] or list(in_texts)
        terms = sorted(sorted(kept, key=lambda term: (-in_texts[term], term))[:MAX_TERMS])
        n_with = np.array([in_texts[term] for term in terms], dtype=np.float64)
        idf = (np.log((1 + len(texts)) / (1 + n_with)) + 1).astype(np.float32)
        if not terms:
            return TfidfEncoder((), idf, np.zeros((0, 1), np.float32))
        W = TfidfEncoder(terms, idf).weights(counts)
        components = randomized_svd(W, min(N_COMPONENTS, *W.shape), random_state=0)[2].T
        return TfidfEncoder(terms, idf, np.ascontiguousarray(components, dtype=np.float32))

    def __call__(self, texts: Sequence[str]) -> Floats:
        return self.encode([clean_text(text) for text in texts])  # long texts are not cut: counting words has no limit

    def encode(self, pieces: Sequence[str]) -> Floats:
        if self.components is None:
            raise SettingError("the TF-IDF encoder has no terms yet. Call fitted(texts) first.")
        return np.asarray(self.weights(Counter(terms_of(piece)) for piece in pieces) @ self.components, dtype=np.float32)

    def weights(self, counts: Iterable[Mapping[str, int]]) -> Any:
        """Return the sparse TF-IDF weights (n, terms) of texts with these counts of terms; rows have length 1, or 0."""
        indices, values, ends = [], [], [0]
        for count in counts:
            known = [(at, n) for term, n in count.items() if (at := self._position.get(term)) is not None]
            found = np.array([at for at, _ in known], dtype=np.int64)
            value = (1 + np.log(np.array([n for _, n in known], dtype=np.float32))) * self.idf[found]
            indices.append(found)
            values.append(value / max(float(np.linalg.norm(value)), 1e-12))
            ends.append(ends[-1] + len(found))
        shape = (len(ends) - 1, len(self.terms))
        return csr_matrix((np.concatenate([*values, []]), np.concatenate([*indices, []]), ends), shape=shape, dtype=np.float32)

    @property
    def fingerprint(self) -> str:
        if self.components is None:
            return hash_of("tfidf")
        return hash_of("tfidf", "\n".join(self.terms), self.idf.tobytes(), self.components.tobytes())

    def state(self) -> dict[str, npt.NDArray[Any]]:
        if self.components is None:
            return {}
        terms = np.frombuffer("\n".join(self.terms).encode(), dtype=np.uint8)
        return {"terms": terms, "idf": self.idf, "components": self.components}

    @classmethod
    def restored(cls, state: State) -> TfidfEncoder:
        """Return the encoder with this state; raise ModelFileError if its arrays do not fit together."""
        try:
            text, idf, components = state["terms"].tobytes().decode(), state["idf"], state["components"]
            terms = text.split("\n") if text else []
            if idf.shape != (len(terms),) or components.ndim != 2 or len(components) != len(terms):
                raise ValueError(f"{len(terms)} terms, weights {idf.shape}, components {components.shape}")
        except (KeyError, ValueError) as error:
            raise ModelFileError(f"the TF-IDF encoder of this model was changed ({error}). Save the model again.") from error
        return cls(terms, idf, components)
