"""TableEncoder: turns a TypedTable into features (n, d). It is fitted without labels, and saved as JSON and arrays.

encoder = TableEncoder.fit(table)
X = encoder.transform(table)                 # every row gets features
for plan in encoder.plans: print(plan)       # how each column is used
same = TableEncoder.restored(encoder.to_json(), encoder.state())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.column_reader import as_kind
from samekind.data.columns.typed_table import Column, TypedTable, require_columns
from samekind.errors import DataError, ModelFileError
from samekind.nets.text.text_encoder import TextEncoder
from samekind.nets.text.text_encoder_names import build_text_encoder, restore_text_encoder
from samekind.tabular.category_block import MISSING, CategoryBlock
from samekind.tabular.column_plan import ColumnPlan, plan_column
from samekind.tabular.dates import DATE_PARTS, date_parts
from samekind.tabular.image_part import ImagePart
from samekind.tabular.number_block import NumberBlock

Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]
EncodedTexts = dict[str, npt.NDArray[Any]]  # features of each text column, by its name
MAX_TFIDF_FEATURES = 100  # largest number of TF-IDF features of a text column; the leading principal components are used
FEATURES_OF_ROLE = {"number": 1, "frequent": 1, "date": len(DATE_PARTS)}  # number of numeric features of a column, by its role


@dataclass(frozen=True, eq=False)
class TextPart:
    """Encoder of one text column, the number of its leading features that are used, and a factor on these features."""

    name: str
    encoder: TextEncoder
    width: int
    factor: float

    def transform(self, column: Column) -> Floats:
        """Return the features (n, width) of the texts in a column. A missing text counts as an empty one."""
        return self.scaled(self.encoder(["" if value is None else value for value in column.values]))

    def scaled(self, z: npt.NDArray[Any]) -> Floats:
        """Return the features (n, width) of texts, from all features that the encoder has computed."""
        return np.asarray(z[:, : self.width], dtype=np.float64) * self.factor


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Fitted encoder of a table: the plan of each column, and the encoders of numbers, categories and texts."""

    plans: tuple[ColumnPlan, ...]
    numbers: NumberBlock
    categories: CategoryBlock
    texts: tuple[TextPart, ...] = ()
    text_encoder: str = "tfidf"
    parts_factor: float = 1.0  # factor on the features of texts and images, if the table also has numbers or categories
    images: tuple[ImagePart, ...] = ()

    # ---------------------------------------------------------------- fitting the encoder

    @classmethod
    def fit(cls, table: TypedTable, text_encoder: str = "tfidf", encoded: EncodedTexts | None = None) -> TableEncoder:
        """Return an encoder fitted to this table; raise DataError if no column can be used.

        The features of the text columns are stored in `encoded`, because encoding may take long.
        """
        encoded = {} if encoded is None else encoded
        plans = tuple(plan_column(name, column, text_encoder) for name, column in table.columns.items())
        used = [plan for plan in plans if plan.role != "dropped"]
        if not used:
            reasons = "; ".join(map(str, plans[:5]))
            raise DataError(f"no column of the table can be a feature ({reasons}). Pass at least one column that varies.")
        categories = CategoryBlock(tuple(_categories(plan, table.columns[plan.name]) for plan in _categorical(plans)))
        values = _numeric_values(plans, table.columns, len(table))
        raw = all(plan.role == "number" for plan in used) and not np.isnan(values).any()
        numbers = NumberBlock.fit(values, _weights(plans), raw=raw)
        texts = tuple(
            _fit_text(plan.name, table.columns[plan.name], text_encoder, encoded) for plan in used if plan.role == "text"
        )
        images = tuple(
            ImagePart.fit(plan.name, table.columns[plan.name], alone=len(used) == 1) for plan in used if plan.role == "image"
        )
        encoder = cls(plans, numbers, categories, texts, text_encoder, images=images)
        if not (texts or images) or not numbers.width + categories.width:
            return encoder
        factor = 1.0 / _unit_factor(encoder.column_features(table))
        return cls(plans, numbers, categories, texts, text_encoder, factor, images)

    # ---------------------------------------------------------------- encoding tables

    @property
    def parts(self) -> list[TextPart | ImagePart]:
        """Return the encoders of the text columns, followed by those of the image columns."""
        return [*self.texts, *self.images]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns of the table at the fit."""
        return tuple(plan.name for plan in self.plans)

    @property
    def like_array(self) -> bool:
        """Whether an array would have the same features: all columns are complete numbers, or all are texts or images."""
        roles = {plan.role for plan in self.plans} - {"dropped"}
        return roles <= {"text", "image"} or (roles == {"number"} and not len(self.numbers.flagged))

    @property
    def width(self) -> int:
        """Return the number of features of a row."""
        return self.numbers.width + self.categories.width + sum(part.width for part in self.parts)

    def transform(self, table: TypedTable, where: str = "X", encoded: EncodedTexts | None = None) -> Features:
        """Return the features (n, d) of a table. `encoded` are the features of its text columns, if they are known.

        It needs the columns of the fit, in any order, and may have further columns.
        """
        known = encoded or {}
        used = [plan for plan in self.plans if plan.role != "dropped"]
        require_columns([plan.name for plan in used], table.names, where)
        columns = {plan.name: as_kind(table.columns[plan.name], plan.name, plan.kind, plan.date_format, where) for plan in used}
        for plan in used:
            _require_same_type(plan, columns[plan.name], where)
        fitted = TypedTable(columns, len(table))
        features = [self.column_features(fitted)]
        for part in self.parts:
            if isinstance(part, TextPart) and part.name in known:
                features.append(part.scaled(known[part.name]) * self.parts_factor)
            else:
                features.append(part.transform(columns[part.name]) * self.parts_factor)
        return np.ascontiguousarray(np.concatenate(features, axis=1), dtype=np.float32)

    def column_features(self, table: TypedTable) -> Floats:
        """Return the features of numbers, dates and categories, without the texts and images."""
        columns = table.columns
        values = _numeric_values(self.plans, columns, len(table))
        cells = [columns[plan.name].values for plan in _categorical(self.plans)]
        return np.concatenate([self.numbers.transform(values), self.categories.transform(cells, len(table))], axis=1)

    # ---------------------------------------------------------------- saving and loading

    def to_json(self) -> dict[str, Any]:
        """Return the fitted encoder as a dict of JSON values, without the arrays, which `state` returns."""
        return {
            "columns": [plan.to_json() for plan in self.plans],
            "numbers": self.numbers.to_json(),
            "categories": [list(one) for one in self.categories.categories],
            "texts": [{"name": part.name, "width": part.width, "factor": part.factor} for part in self.texts],
            "text_encoder": self.text_encoder,
            "parts_factor": self.parts_factor,
            "images": [{"name": part.name, "encoder": part.encoder, "width": part.width} for part in self.images],
        }

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the encoders of text and image columns, by name."""
        texts = {f"{i}.{name}": array for i, part in enumerate(self.texts) for name, array in part.encoder.state().items()}
        images = {f"image{i}.{name}": array for i, part in enumerate(self.images) for name, array in part.state().items()}
        return texts | images

    @classmethod
    def restored(cls, content: Mapping[str, Any], state: Mapping[str, npt.NDArray[Any]]) -> TableEncoder:
        """Return the encoder with this description and these arrays; raise ModelFileError if they do not fit together."""
        try:
            plans = tuple(ColumnPlan.from_json(one) for one in content["columns"])
            numbers = NumberBlock.from_json(content["numbers"])
            categories = CategoryBlock(tuple(map(tuple, content["categories"])))
            texts = tuple(
                TextPart(one["name"], _restored_text(content["text_encoder"], i, state), one["width"], one["factor"])
                for i, one in enumerate(content["texts"])
            )
            images = tuple(
                ImagePart.restored(one, own_state(state, f"image{i}.")) for i, one in enumerate(content.get("images", []))
            )
            factor = content["parts_factor"]
            encoder = cls(plans, numbers, categories, texts, content["text_encoder"], factor, images)
            encoder.require_consistent()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFileError(f"the columns of this model were changed ({error!r}). Save the model again.") from error
        return encoder

    def require_consistent(self) -> None:
        """Raise ValueError unless the numbers, categories and texts fit the plans of the columns."""
        k = int(sum(FEATURES_OF_ROLE.get(plan.role, 0) for plan in self.plans))
        sizes = {len(self.numbers.medians), len(self.numbers.center), len(self.numbers.scale)}
        if sizes != {k} or any(not 0 <= at < k for at in self.numbers.flagged):
            raise ValueError(f"the table has {k} numeric features, but {len(self.numbers.medians)} medians")
        if len(self.categories.categories) != len(_categorical(self.plans)) or not all(self.categories.categories):
            raise ValueError("the saved categories do not match the categorical columns")
        if [part.name for part in self.texts] != [plan.name for plan in self.plans if plan.role == "text"]:
            raise ValueError("the saved text encoders do not match the columns of texts")
        if [part.name for part in self.images] != [plan.name for plan in self.plans if plan.role == "image"]:
            raise ValueError("the saved image encoders do not match the columns of images")


# ---------------------------------------------------------------- numeric columns


def _numeric_values(plans: Sequence[ColumnPlan], columns: Mapping[str, Column], n_rows: int) -> Floats:
    """Return the numeric values (n, k) of all columns: numbers, parts of dates, and logarithms of frequencies."""
    values = np.empty((n_rows, sum(FEATURES_OF_ROLE.get(plan.role, 0) for plan in plans)))
    at = 0
    for plan in plans:
        width = FEATURES_OF_ROLE.get(plan.role, 0)
        if plan.role == "number":
            values[:, at] = columns[plan.name].values
        elif plan.role == "date":
            values[:, at : at + width] = date_parts(columns[plan.name].values, plan.origin)
        elif plan.role == "frequent":
            values[:, at] = [np.log(plan.counts.get(value, 1)) for value in columns[plan.name].values]
        at += width
    return values


def _weights(plans: Sequence[ColumnPlan]) -> Floats:
    """Return a factor for each numeric feature, so that every column has mean square 1, however many features it has."""
    widths = [FEATURES_OF_ROLE.get(plan.role, 0) for plan in plans]
    return np.concatenate([np.full(width, width**-0.5) for width in widths if width] or [np.empty(0)])


# ---------------------------------------------------------------- category columns


def _categorical(plans: Sequence[ColumnPlan]) -> list[ColumnPlan]:
    return [plan for plan in plans if plan.role in ("one_hot", "frequent")]


def _categories(plan: ColumnPlan, column: Column) -> tuple[str, ...]:
    return (*((MISSING,) if column.missing().any() else ()), *plan.categories)


def _require_same_type(plan: ColumnPlan, column: Column, where: str) -> None:
    """Raise DataError if a column had words at the fit and now has numbers."""
    if plan.role not in ("one_hot", "frequent"):
        return
    present = {value for value in column.values if value is not None}
    known = set(plan.categories)
    if present and not present & known and all(map(_is_number, present)) and not any(map(_is_number, known)):
        raise DataError(
            f"{where}: column {plan.name!r} held categories such as {plan.categories[0][:40]!r} at the fit, and now holds "
            f"numbers such as {min(present)}. Correct the column, or fit again."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- text columns


def _fit_text(name: str, column: Column, text_encoder: str, encoded: EncodedTexts) -> TextPart:
    texts = ["" if value is None else value for value in column.values]
    encoder = build_text_encoder(text_encoder).fitted(texts)
    encoded[name] = encoder(texts)
    z = np.asarray(encoded[name], dtype=np.float64)
    z = z[:, :MAX_TFIDF_FEATURES] if text_encoder == "tfidf" else z
    return TextPart(name, encoder, z.shape[1], _unit_factor(z))


def _restored_text(name: str, at: int, state: Mapping[str, npt.NDArray[Any]]) -> TextEncoder:
    return restore_text_encoder(name, own_state(state, f"{at}."))


def own_state(state: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays whose names begin with `prefix`, by their names without the prefix."""
    return {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}


def _unit_factor(z: Floats) -> float:
    """Return the factor by which features (n, d), minus their mean, get mean squared length 1."""
    spread = float(np.square(z - z.mean(axis=0)).sum(axis=1).mean())
    return spread**-0.5 if spread > 1e-12 else 1.0
