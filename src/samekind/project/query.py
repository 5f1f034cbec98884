"""Similarity search in a run: finds the most similar items of images, arrays or items; writes a CSV table and a figure.

config = QueryConfig(images=("new/1.jpg", "new/2.jpg"), k=9)
result = run_query(Path("runs/photos"), config, Path("runs/photos/query"))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.data.readers.reader import Encoding, Skipped, UserData
from samekind.data.texts import text_array
from samekind.data.user_data import open_like
from samekind.errors import DataError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.files.io import write_output
from samekind.files.output_paths import require_output_path
from samekind.nets.text.cleaning import clean_text
from samekind.progress import Progress
from samekind.project.run_folder import FittedRun, LogFunction, discard_log, open_run, write_csv
from samekind.search.index import Candidates

Array = npt.NDArray[Any]
Neighbours = list[tuple[int, float]]  # (index of an item, its similarity), most similar item first
MAX_DIGITS = 18  # largest number of digits in the number of an item
MAX_K = 10_000  # largest number of neighbours of a query
MAX_FIGURE_NEIGHBOURS = 50  # largest number of neighbours of a query in the figure
MAX_FIGURE_QUERIES = 24  # largest number of queries in the figure; the table has all queries
HEADER = ["query", "rank", "path", "similarity", "label", "confidence"]
EXCERPT = 100  # characters of a text in the table


@dataclass(frozen=True)
class QueryConfig:
    """Queries and options of a similarity search.

    The queries are `images` (image files, folders or arrays), and items of the run with these `indices`. `against` is the path
    of the data to search; None: the data of the run.
    """

    images: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # typed texts, for a run on texts
    indices: tuple[int, ...] = ()
    against: str | None = None
    k: int = 9
    symmetric: bool = False
    candidates: Candidates = "auto"


@dataclass(frozen=True)
class QueryResult:
    """Result of a search: the files it wrote, its numbers of queries and searched items, and the files that were skipped.

    Vectors have no figure.
    """

    table: Path
    figure: Path | None
    n_queries: int
    n_searched: int
    skipped: tuple[Skipped, ...]
    exact: bool

    def __str__(self) -> str:
        mode = "exact" if self.exact else "approximate"
        return f"{self.n_queries} queries against {self.n_searched} items ({mode} search): {self.table}"


@dataclass(frozen=True)
class LabelledItems:
    """Items with labels, confidences and identities. Items that come from the same file or array row have the same identity."""

    names: Sequence[str]
    labels: Sequence[str]
    confidences: Sequence[float]
    identities: Sequence[str]
    images: Array | None  # images of the items, which are drawn in the figure; None if the items are not images
    texts: Sequence[str] | None = None  # how each text begins; None if the items are not texts


def parse_indices(text: str) -> tuple[int, ...]:
    """Return the item numbers in a command-line argument such as "3,17" or "3 17"."""
    parts = text.replace(",", " ").split()
    wrong = [part for part in parts if not part.isdecimal() or len(part) > MAX_DIGITS]
    if wrong:
        raise SettingError(f"{wrong[0][:50]!r} is not an item number; expected whole numbers with commas, such as 3,17.")
    return tuple(int(part) for part in parts)


def run_query(
    run: Path, config: QueryConfig, out: Path, *, log: LogFunction = discard_log, progress: Progress | None = None
) -> QueryResult:
    """Find the k most similar items of each query; write OUT.csv, and for images OUT.png."""
    require_output_path(out)
    source = _RunData(open_run(run), log, progress)
    _require_valid(config, source.n_items, run)
    queries, z, skipped = _read_queries(source, config)
    if config.against is None:
        searched, index = source.items, source.model.index()
    else:
        data = source.read(config.against)
        searched, features = _predicted_items(source.model, data, config.against)
        index, skipped = source.model.index(features=features), (*skipped, *data.skipped)
    # one item more than k, because a query that is among the searched items is removed from its own result
    found = index.search(z, min(config.k + 1, len(index)), symmetric=config.symmetric, candidates=config.candidates)
    position = {identity: item for item, identity in enumerate(searched.identities)}
    neighbours = [
        [(item, W) for item, W in found.pairs(query) if item != position.get(identity)][: config.k]
        for query, identity in enumerate(queries.identities)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    table = out.with_name(out.name + ".csv")
    write_csv(
        table,
        [*HEADER, *([] if searched.texts is None else ["text"])],
        _table_rows(queries, searched, neighbours),
        write=write_output,
    )
    figure = None
    if queries.images is not None and searched.images is not None:
        figure = out.with_name(out.name + ".png")
        write_output(figure, _figure(queries, searched, neighbours), DataError)
    return QueryResult(table, figure, len(queries.names), len(index), skipped, found.exact)


class _RunData:
    """A fitted run, and the data that it was fitted to. The data is read when it is first needed."""

    def __init__(self, run: FittedRun, log: LogFunction, progress: Progress | None) -> None:
        self.run, self.model, self._log, self._progress = run, run.model, log, progress

    @property
    def n_items(self) -> int:
        return len(self.model.transduction_)

    def read(self, path: str | list[str]) -> UserData:
        """Return other data, read in the same way as the data of the run."""
        return open_like(path, self.run.encoding, cache=self.run.folder / "cache", progress=self._progress)

    @cached_property
    def items(self) -> LabelledItems:
        """Return the items that the run was fitted to; if their files are gone, without images."""
        names, labels, confidences = self.run.predictions()
        try:
            data = self.read(self.run.data)
        except DataError as error:
            self._log(f"no figure is drawn: {error}")
            return LabelledItems(names, labels, confidences, names, None)
        if list(data.names) != names:
            raise DataError(
                f"{self.run.data} has other items than when the model was fitted ({len(data)} now, {len(names)} then). "
                "Restore the data, or fit again."
            )
        identities = _identities(self.run.data, names, self.run.encoding)
        return LabelledItems(names, labels, confidences, identities, _images(data), _excerpts(data))


def _require_valid(config: QueryConfig, n_items: int, run: Path) -> None:
    if not (config.images or config.indices or config.texts):
        raise SettingError("no query was given; give images, a folder or an array, or --items 3,17 of the run's data.")
    if not 1 <= config.k <= MAX_K:
        raise SettingError(f"k is {config.k}; expected 1 to {MAX_K}.")
    outside = [index for index in config.indices if not 0 <= index < n_items]
    if outside:
        raise SettingError(
            f"item {outside[0]} is not in {run}; its items have the numbers 0 to {n_items - 1}, in the order of labels.csv."
        )


def _read_queries(source: _RunData, config: QueryConfig) -> tuple[LabelledItems, torch.Tensor, tuple[Skipped, ...]]:
    """Return the queries, their features, and the files that could not be read."""
    parts: list[LabelledItems] = []
    z: list[torch.Tensor] = []
    skipped: list[Skipped] = []
    if config.indices:
        indices = list(config.indices)
        parts.append(_subset(source.items, indices))
        z.append(source.model.index().features(indices))
    if config.texts:
        if source.run.encoding.kind != "texts":
            raise SettingError(
                f"a text was given as the query, but the run holds {source.run.encoding.kind}. Leave the text out."
            )
        items, features = _typed_texts(source.model, config.texts)
        parts.append(items)
        z.append(torch.from_numpy(features))
    for path in config.images:
        data = source.read(path)
        skipped += data.skipped
        items, features = _predicted_items(source.model, data, path)
        parts.append(items)
        z.append(torch.from_numpy(features))
    return _concatenate(parts), torch.cat(z), tuple(skipped)


def _typed_texts(model: SemiSupervisedClassifier, texts: tuple[str, ...]) -> tuple[LabelledItems, Array]:
    """Return the texts that a user has typed, with their predicted labels, and their features; the run does not store them."""
    features = model.transform(text_array(texts))
    probabilities = model.predict_proba_from_features(features)
    labels = [str(model.classes_[c]) for c in probabilities.argmax(1)]
    shown = [_excerpt(text) for text in texts]
    identities = [f"\0typed\0{i}" for i in range(len(texts))]
    return LabelledItems(shown, labels, probabilities.max(1).tolist(), identities, None, shown), features


def _predicted_items(model: SemiSupervisedClassifier, data: UserData, path: str) -> tuple[LabelledItems, Array]:
    """Return the items of `data` with predicted labels and confidences, and their features."""
    features = model.transform(data.x)
    probabilities = model.predict_proba_from_features(features)
    labels = [str(model.classes_[c]) for c in probabilities.argmax(1)]
    identities = _identities(path, data.names, data.encoding)
    return LabelledItems(
        data.names, labels, probabilities.max(1).tolist(), identities, _images(data), _excerpts(data)
    ), features


def _identities(path: str, names: Sequence[str], encoding: Encoding) -> list[str]:
    """Return a string for each item that is the same for the same file or array row, by whatever path it was given."""
    root = Path(path)
    in_files = encoding.source in ("images", "text_folder")
    if in_files and root.is_dir():
        return [str((root / name).resolve()) for name in names]
    return [str(root.resolve()) if in_files else f"{root.resolve()}\0{name}" for name in names]


def _images(data: UserData) -> Array | None:
    return data.x if data.kind == "images" else None


def _excerpts(data: UserData) -> list[str] | None:
    return [_excerpt(text) for text in data.x] if data.kind == "texts" else None


def _excerpt(text: str) -> str:
    """Return the beginning of a text in one line."""
    return clean_text(text[: 10 * EXCERPT])[:EXCERPT]


def _subset(items: LabelledItems, indices: list[int]) -> LabelledItems:
    return LabelledItems(
        names=[items.names[i] for i in indices],
        labels=[items.labels[i] for i in indices],
        confidences=[items.confidences[i] for i in indices],
        identities=[items.identities[i] for i in indices],
        images=None if items.images is None else np.asarray(items.images[indices]),
        texts=None if items.texts is None else [items.texts[i] for i in indices],
    )


def _concatenate(parts: list[LabelledItems]) -> LabelledItems:
    """Return the items of all parts in one. All images of a run have the same size, so they can be concatenated."""
    images = [part.images for part in parts if part.images is not None]
    return LabelledItems(
        names=[name for part in parts for name in part.names],
        labels=[label for part in parts for label in part.labels],
        confidences=[confidence for part in parts for confidence in part.confidences],
        identities=[identity for part in parts for identity in part.identities],
        images=np.concatenate(images) if len(images) == len(parts) else None,
    )


def _table_rows(queries: LabelledItems, searched: LabelledItems, neighbours: list[Neighbours]) -> Iterator[list[str]]:
    for name, found in zip(queries.names, neighbours, strict=True):
        for rank, (item, W) in enumerate(found, 1):
            confidence = f"{searched.confidences[item]:.6f}"
            text = [] if searched.texts is None else [searched.texts[item]]
            yield [name, str(rank), searched.names[item], f"{W:.6f}", searched.labels[item], confidence, *text]


def _figure(queries: LabelledItems, searched: LabelledItems, neighbours: list[Neighbours]) -> bytes:
    from samekind.project.query_figure import Tile, render_figure

    assert queries.images is not None and searched.images is not None
    rows = []
    for query, found in enumerate(neighbours[:MAX_FIGURE_QUERIES]):
        query_label = queries.labels[query]
        tiles = [
            Tile(
                searched.images[item],
                title=f"{W:.3f} {searched.labels[item]}",
                caption=Path(searched.names[item]).name,
                other_class=searched.labels[item] != query_label,
            )
            for item, W in found[:MAX_FIGURE_NEIGHBOURS]
        ]
        rows.append([Tile(queries.images[query], query_label, Path(queries.names[query]).name), *tiles])
    return render_figure(rows)
