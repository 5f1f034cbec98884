"""Routes for the images of items: thumbnails and large views."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from samekind.errors import RequestError
from samekind.server.media.thumbnails import SIZES, media_type
from samekind.server.routing import Router
from samekind.server.schemas import DIGITS, PathId, RequestModel, Text
from samekind.server.session import Session

router = Router()


class ImageQuery(RequestModel):
    """Query of an image: the key of its content."""

    key: Annotated[
        Text, Field(max_length=64, description="image_key of the item; with it the browser may cache the image for ever")
    ] = ""


class ThumbnailQuery(ImageQuery):
    """Query of a thumbnail: the key of the image's content, and the size."""

    size: Annotated[int, Field(ge=min(SIZES), le=max(SIZES), description="128 or 256 pixels"), DIGITS] = SIZES[0]


@router.get("/img/{id}/thumb", "A thumbnail", media_type="image/*")
def show_thumbnail(session: Session, id: PathId, query: ThumbnailQuery) -> Response:
    if query.size not in SIZES:
        raise RequestError(422, f"size is {query.size}; expected {' or '.join(map(str, SIZES))}.")
    source = session.image_source(id)
    return _image_response(session.thumbnails.get(source, query.size), query.key, source.key)


@router.get("/img/{id}/full", "The full image, encoded anew", media_type="image/*")
def show_full_image(session: Session, id: PathId, query: ImageQuery) -> Response:
    source = session.image_source(id)
    return _image_response(session.thumbnails.full(source), query.key, source.key)


def _image_response(blob: bytes, requested_key: str, key: str) -> Response:
    """Return an image. The browser may cache it for ever if the requested key is the key of the present content."""
    cached = "private, max-age=31536000, immutable" if requested_key == key[:16] else "private, no-cache"
    return Response(blob, media_type=media_type(blob), headers={"cache-control": cached})
