"""ImagePart: features of a column of images, from a pretrained encoder.

A missing or unreadable image gets the mean features.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.typed_table import Column
from samekind.data.readers.image_decoder import decode_image, read_image_header
from samekind.errors import DataError
from samekind.nets.encoders.efficientnet import VARIANTS
from samekind.nets.encoders.frozen_features import Encoder, extract_features
from samekind.nets.encoders.names import resolve_encoder
from samekind.nets.encoders.plan import DEFAULT_SIDE, plan_encoder

Floats = npt.NDArray[np.float64]
BLOCK = 256  # number of images that are decoded at a time
MAX_FEATURES = 100  # largest number of principal components that replace the features, if the table has other columns too
N_HEADERS = 100  # number of images whose size is read to choose the encoder


@dataclass(frozen=True, eq=False)
class ImagePart:
    """Features of one image column: (z - center) @ basis, where z (n, d) are the features that the encoder computes.

    `name` is the name of the column, and `encoder` that of the encoder.
    """

    name: str
    encoder: str
    center: Floats  # (d,)
    basis: Floats  # (d, k); scaled so that features have mean squared length 1

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.basis.shape[1])

    @classmethod
    def fit(cls, name: str, column: Column, *, alone: bool) -> ImagePart:
        """Choose the encoder for the images of a column, and fit the reduction of its features.

        If the images are the only column of the table (`alone`), the features are not reduced, only scaled.
        """
        encoder = _choose_encoder(name, column)
        z, read = encode_images(column, encoder)
        if not read.any():
            raise DataError(
                f"none of the {len(column)} images of column {name!r} can be read. Check the files and their paths."
            )
        center = z[read].mean(axis=0)
        centered = z[read] - center
        directions = np.eye(z.shape[1])
        if not alone:
            directions = np.linalg.svd(centered, full_matrices=False)[2][:MAX_FEATURES].T
        length = float(np.square(centered @ directions).sum(axis=1).mean()) ** 0.5
        return cls(name, encoder, center, directions / (length or 1.0))

    def transform(self, column: Column) -> Floats:
        """Return the features (n, k) of the images in a column."""
        z, read = encode_images(column, self.encoder)
        return np.asarray(np.where(read[:, None], z - self.center, 0.0) @ self.basis)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that `fit` computed."""
        return {"center": self.center, "basis": self.basis}

    @classmethod
    def restored(cls, content: Mapping[str, Any], state: Mapping[str, npt.NDArray[Any]]) -> ImagePart:
        """Return the object with this description and these arrays; raise ValueError if they do not fit together."""
        center, basis = state["center"], state["basis"]
        if content["encoder"].partition("@")[0] not in VARIANTS:
            raise ValueError(f"the images of column {content['name']} have the unknown encoder {content['encoder']}")
        if center.ndim != 1 or basis.shape != (len(center), content["width"]):
            raise ValueError(
                f"the saved arrays of the image features have the shapes {center.shape} and {basis.shape}, which do not "
                "fit together"
            )
        return cls(content["name"], content["encoder"], center, basis)


def encode_images(column: Column, encoder: str) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the features (n, d) of images, and a mask (n,) of the images that were read.

    Images that are missing or cannot be read have zeros as features.
    """
    net, side = _built(encoder)
    blocks, read = [], np.zeros(len(column), dtype=bool)
    for start in range(0, len(column), BLOCK):
        pixels = [_decoded(value, (side, side, 3)) for value in column.values[start : start + BLOCK]]
        images = np.stack([np.zeros((side, side, 3), np.uint8) if one is None else one for one in pixels])
        read[start : start + len(pixels)] = [one is not None for one in pixels]
        blocks.append(extract_features(net, images))
    z = np.concatenate(blocks).astype(np.float64)
    return np.where(read[:, None], z, 0.0), read


def opened_image(value: Any) -> Any:
    """Return the image of a cell as a path, or as a file in memory if the cell holds the bytes of the image."""
    return io.BytesIO(value) if isinstance(value, bytes) else Path(value)


def _decoded(value: Any, shape: tuple[int, int, int]) -> Any:
    found = None if value is None else decode_image(opened_image(value), shape)
    return None if isinstance(found, str) else found


def _choose_encoder(name: str, column: Column) -> str:
    """Return the name of the encoder that suits the number and the size of the images."""
    present = [value for value in column.values if value is not None]
    headers = [read_image_header(opened_image(value)) for value in present[:: -(-len(present) // N_HEADERS)]]
    sides = [min(header.height, header.width) for header in headers if not isinstance(header, str)]
    if not sides:
        reason = next(header for header in headers if isinstance(header, str))
        raise DataError(f"the images of column {name!r} cannot be read; the first: {reason}. Check the files and their paths.")
    plan = plan_encoder(len(column), int(np.median(sides)))
    assert plan is not None  # `plan_encoder` returns None only if there is a time limit
    return plan.name


@lru_cache(maxsize=4)
def _built(encoder: str) -> tuple[Encoder, int]:
    """Return the encoder of this name, which is built only once, and the side of its input images in pixels."""
    net = resolve_encoder(encoder)
    return net, int(getattr(net, "side", None) or DEFAULT_SIDE)
