"""TF-IDF with truncated SVD (latent semantic analysis): features from the words of the texts, without a pretrained model.

Terms are words in lower case, pairs of neighbouring characters in scripts without spaces, and emoji.
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

MAX_TERMS = 20_000  # number of terms that are kept, the most frequent ones
MIN_TEXTS = 2  # terms in fewer texts are dropped, because a term in one text does not relate it to other texts
N_COMPONENTS = 200
# scripts without spaces: Thai, Lao, Khmer, kana, Han, ...
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
TERM = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+|[\u2600-\u27bf\U0001f300-\U0001faff]")
NOT_SPACED = re.compile(rf"[{UNSPACED}]")


def terms_of(text: str) -> list[str]:
    """Return the terms of a cleaned text: words, and pairs of characters in scripts without spaces."""
    found: list[str] = []
    for term in TERM.findall(text.lower()):
        if NOT_SPACED.match(term) and len(term) > 1:
            found += [a + b for a, b in pairwise(term)]
        else:
            found.append(term)
    return found


class TfidfEncoder(TextEncoder):
    """Encoder: TF-IDF weights of terms, scaled to length 1 and projected on SVD components.

    The weight of a term is (1 + ln count) times its inverse document frequency.
    """

    name = "tfidf"

    def __init__(self, terms: Sequence[str] = (), idf: Floats | None = None, components: Floats | None = None) -> None:
        self.terms = tuple(terms)
        self.idf = np.empty(0, np.float32) if idf is None else idf
        self.components = components  # (number of terms, k); None: the encoder is not fitted
        self._position = {term: at for at, term in enumerate(self.terms)}

    def fitted(self, texts: Sequence[str]) -> TfidfEncoder:
        """Return a new encoder whose terms and components are learned from these texts."""
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
        # long texts are not cut into pieces, because words can be counted in a text of any length
        return self.encode([clean_text(text) for text in texts])

    def encode(self, pieces: Sequence[str]) -> Floats:
        if self.components is None:
            raise SettingError("the TF-IDF encoder has no terms yet. Call fitted(texts) first.")
        return np.asarray(self.weights(Counter(terms_of(piece)) for piece in pieces) @ self.components, dtype=np.float32)

    def weights(self, counts: Iterable[Mapping[str, int]]) -> Any:
        """Return the sparse TF-IDF weights (n, terms) of n texts, from the counts of their terms.

        Each row is scaled to length 1; a text without known terms has a row of zeros.
        """
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
        """Return the encoder that is restored from saved arrays; raise ModelFileError if they do not fit together."""
        try:
            text, idf, components = state["terms"].tobytes().decode(), state["idf"], state["components"]
            terms = text.split("\n") if text else []
            if idf.shape != (len(terms),) or components.ndim != 2 or len(components) != len(terms):
                raise ValueError(
                    f"its {len(terms)} terms do not match weights of shape {idf.shape} and components of shape "
                    f"{components.shape}"
                )
        except (KeyError, ValueError) as error:
            raise ModelFileError(f"the TF-IDF encoder of this model was changed ({error}). Save the model again.") from error
        return cls(terms, idf, components)
