"""What is most alike in a run, or in a folder it has never seen, to pictures, rows of an array, or rows of its own data.

answer = ask(Path("runs/photos"), Question(images=("new/1.jpg", "new/2.jpg"), k=9), Path("runs/photos/query"))
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.data.cache import Progress
from samekind.data.own import Encoding, OwnData, open_like
from samekind.data.skipped import Skipped
from samekind.errors import DataError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.io import atomic_write
from samekind.project.fit import Run, open_run
from samekind.search.index import Candidates

Array = npt.NDArray[Any]
Say = Callable[[str], None]
SHOWN = 24  # queries on the panel; the table has all of them
HEADER = ["query", "rank", "path", "similarity", "label", "confidence"]


@dataclass(frozen=True)
class Question:
    """Pictures, folders or arrays (`images`), and numbers of items of the run (`rows`); `against` is where to look instead."""

    images: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    against: str | None = None
    k: int = 9
    symmetric: bool = False
    candidates: Candidates = "auto"


@dataclass(frozen=True)
class Answer:
    """Where the table and the picture are (vectors have none), how many were asked, and what was left out."""

    table: Path
    panel: Path | None
    n_queries: int
    n_searched: int
    skipped: tuple[Skipped, ...]
    exact: bool

    def __str__(self) -> str:
        way = "all of them compared" if self.exact else "among likely ones"
        return f"{self.n_queries} asked of {self.n_searched} items, {way}: {self.table}"


def parse_indices(words: str) -> tuple[int, ...]:
    """Row numbers as given on the command line: 3,17 or "3 17"."""
    parts = words.replace(",", " ").split()
    wrong = [part for part in parts if not part.isdecimal()]
    if wrong:
        raise SettingError(f"{wrong[0]!r} is no row; expected whole numbers with commas, such as 3,17.")
    return tuple(int(part) for part in parts)


@dataclass(frozen=True)
class Items:
    """Things by name, with a label and a confidence for each, and the file of each where there is one."""

    names: Sequence[str]
    labels: Sequence[str]
    confidences: Sequence[float]
    places: Sequence[str]
    x: Array | None  # images to be drawn; None where there are none


def ask(run: Path, question: Question, out: Path, *, say: Say = lambda _: None, progress: Progress | None = None) -> Answer:
    """Writes OUT.csv, and OUT.png for pictures."""
    opened = open_run(run)
    known = _Known(opened, say, progress)
    _require_sensible(question, len(known), run)
    queries, z, skipped = _queries(known, question)
    if question.against is None:
        pool, index = known.items, known.model.index()
    else:
        data = known.read(question.against)
        pool, features = _items(known.model, data, question.against)
        index, skipped = known.model.index(features=features), (*skipped, *data.skipped)
    # one more than wanted, because a picture is no answer to itself
    found = index.search(z, question.k + 1, symmetric=question.symmetric, candidates=question.candidates)
    own = _own(queries, pool)
    answers = [_first(found.pairs(row), own[row], question.k) for row in range(len(queries.names))]
    out.parent.mkdir(parents=True, exist_ok=True)
    table = out.with_name(out.name + ".csv")
    atomic_write(table, _as_csv(_lines(queries, pool, answers)), DataError)
    panel = None
    if queries.x is not None and pool.x is not None:
        panel = out.with_name(out.name + ".png")
        atomic_write(panel, _panel(queries, pool, answers), DataError)
    return Answer(table, panel, len(queries.names), len(index), skipped, found.exact)


class _Known:
    """A run, and its own data once it is needed."""

    def __init__(self, run: Run, say: Say, progress: Progress | None) -> None:
        self.run, self.model, self._say, self._progress = run, run.model, say, progress

    def __len__(self) -> int:
        return len(self.model.transduction_)

    def read(self, path: str | list[str]) -> OwnData:
        return open_like(path, self.run.encoding, cache=self.run.folder / "cache", progress=self._progress)

    @cached_property
    def items(self) -> Items:
        """The items that were sorted, with their pictures as long as these are where they were."""
        names, labels, confidences = self.run.answers()
        try:
            data = self.read(self.run.data)
        except DataError as error:
            self._say(f"no picture is drawn: {error}")
            return Items(names, labels, confidences, names, None)
        if list(data.names) != names:
            raise DataError(
                f"{self.run.data} holds other items than when it was fitted ({len(data)} now, {len(names)} then). "
                "Bring it back as it was, or fit again."
            )
        return Items(names, labels, confidences, _places(self.run.data, names, self.run.encoding), _drawn(data))


def _require_sensible(question: Question, n_items: int, run: Path) -> None:
    if not question.images and not question.rows:
        raise SettingError("nothing was asked about; give pictures, a folder or an array, or --rows 3,17 of the run's data.")
    if question.k < 1:
        raise SettingError(f"k is {question.k}; expected 1 or more.")
    outside = [row for row in question.rows if not 0 <= row < n_items]
    if outside:
        raise SettingError(
            f"row {outside[0]} is not in {run}; its items have the numbers 0 to {n_items - 1}, as in labels.csv."
        )


def _queries(known: _Known, question: Question) -> tuple[Items, torch.Tensor, tuple[Skipped, ...]]:
    """What is asked about, its features, and what could not be read."""
    parts: list[Items] = []
    z: list[torch.Tensor] = []
    skipped: list[Skipped] = []
    if question.rows:
        rows = list(question.rows)
        parts.append(_chosen(known.items, rows))
        z.append(known.model.index().features(rows))
    for path in question.images:
        data = known.read(path)
        skipped += data.skipped
        items, features = _items(known.model, data, path)
        parts.append(items)
        z.append(torch.from_numpy(features))
    return _joined(parts), torch.cat(z), tuple(skipped)


def _items(model: SemiSupervisedClassifier, data: OwnData, path: str) -> tuple[Items, Array]:
    """What the model says of these data, and their features."""
    features = model.transform(data.x)
    shares = model.predict_proba_from_features(features)
    labels = [str(model.classes_[c]) for c in shares.argmax(1)]
    places = _places(path, data.names, data.encoding)
    return Items(data.names, labels, shares.max(1).tolist(), places, _drawn(data)), features


def _places(path: str, names: Sequence[str], encoding: Encoding) -> list[str]:
    """Something that is the same for the same item, however it was named."""
    root = Path(path)
    if encoding.source == "pictures" and root.is_dir():
        return [str((root / name).resolve()) for name in names]
    return [str(root.resolve()) if encoding.source == "pictures" else f"{root.resolve()}\0{name}" for name in names]


def _drawn(data: OwnData) -> Array | None:
    return data.x if data.kind == "images" else None


def _chosen(items: Items, rows: list[int]) -> Items:
    names, labels, places = ([of[row] for row in rows] for of in (items.names, items.labels, items.places))
    x = None if items.x is None else np.asarray(items.x[rows])
    return Items(names, labels, [items.confidences[row] for row in rows], places, x)


def _joined(parts: list[Items]) -> Items:
    """All parts as one; pictures of a run have one size."""
    names, labels, places = ([word for part in parts for word in getattr(part, of)] for of in ("names", "labels", "places"))
    confidences = [share for part in parts for share in part.confidences]
    images = [part.x for part in parts if part.x is not None]
    return Items(names, labels, confidences, places, np.concatenate(images) if len(images) == len(parts) else None)


def _own(queries: Items, pool: Items) -> list[int]:
    where = {place: item for item, place in enumerate(pool.places)}
    return [where.get(place, -1) for place in queries.places]


def _first(found: list[tuple[int, float]], own: int, k: int) -> list[tuple[int, float]]:
    return [(item, W) for item, W in found if item != own][:k]


def _lines(queries: Items, pool: Items, answers: list[list[tuple[int, float]]]) -> Iterator[list[str]]:
    for name, answer in zip(queries.names, answers, strict=True):
        for rank, (item, W) in enumerate(answer, 1):
            words = [pool.names[item], f"{W:.6f}", pool.labels[item], f"{pool.confidences[item]:.6f}"]
            yield [name, str(rank), *words]


def _as_csv(lines: Iterator[list[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(lines)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _panel(queries: Items, pool: Items, answers: list[list[tuple[int, float]]]) -> bytes:
    from samekind.project.query_figure import Tile, panel

    assert queries.x is not None and pool.x is not None
    rows = []
    for q, answer in enumerate(answers[:SHOWN]):
        own = queries.labels[q]
        tiles = [
            Tile(pool.x[item], f"{W:.3f} {pool.labels[item]}", Path(pool.names[item]).name, odd=pool.labels[item] != own)
            for item, W in answer
        ]
        rows.append([Tile(queries.x[q], own, Path(queries.names[q]).name), *tiles])
    return panel(rows)
