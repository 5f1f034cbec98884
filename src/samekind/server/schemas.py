"""Base class and field types of request models, and error messages for requests that do not match their model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from samekind.errors import RequestError

JsonSchema = dict[str, Any]
MAX_INT32 = 2**31 - 1
MAX_EVENT = 2**53  # largest event number; JavaScript does not represent larger integers exactly


class RequestModel(BaseModel):
    """Body or query of a request. Values must have exactly the declared types, and unknown fields are refused.

    The validators are built at the first request, so that the server starts quickly.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


Model = TypeVar("Model", bound=RequestModel)


# ---------------------------------------------------------------- types of the fields


def _require_text(text: str) -> str:
    """Refuse text that no file name and no database can contain: NUL, and half of a surrogate pair, which JSON allows."""
    if "\0" in text:
        raise ValueError("text holds a NUL character")
    text.encode()  # raises UnicodeEncodeError, which is a ValueError, for half of a surrogate pair
    return text


def _parse_digits(value: object) -> object:
    """Return plain digits as an integer. Other spellings that Python accepts, such as " 5", "5.0" or "1_000", are refused."""
    if not isinstance(value, str):
        return value
    if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20):
        raise ValueError("expected an integer in plain digits, such as 17")
    return int(value)


def _parse_flag(value: object) -> object:
    """Return a flag in a query string (1, 0, true or false) as a bool."""
    if not isinstance(value, str):
        return value
    if value not in ("1", "0", "true", "false"):
        raise ValueError("expected one of the flags 1, 0, true and false")
    return value in ("1", "true")


Text = Annotated[str, AfterValidator(_require_text)]
DIGITS = BeforeValidator(_parse_digits)  # for integers in a URL; in an annotation, it must be the last entry
QueryFlag = Annotated[bool, BeforeValidator(_parse_flag)]

ItemId = Annotated[int, Field(ge=0, le=MAX_INT32, description="id of an item")]
ClassId = Annotated[int, Field(ge=0, le=MAX_INT32, description="id of a class")]
RequestId = Annotated[
    Text, Field(min_length=1, max_length=64, description="any name for this request: a request that is sent twice is done once")
]
ClassName = Annotated[Text, Field(min_length=1, max_length=200)]
Hotkey = Annotated[Text, Field(min_length=1, max_length=10)]
Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$", description="#rrggbb")]
BatchId = Annotated[Text, Field(min_length=1, max_length=64)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
QueryId = Annotated[int, Field(ge=0, le=MAX_INT32), DIGITS]
PathId = QueryId


# ---------------------------------------------------------------- validation of requests


def validate_body(model: type[Model], value: object) -> Model:
    """Return the JSON value of a request body as an instance of the model; raise RequestError if it does not match."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refusal(error, model, "the body") from error


def validate_query(model: type[Model], values: Mapping[str, str]) -> Model:
    """Return the values of a query string, which are all texts, as an instance of the model; raise RequestError if they
    do not match.
    """
    try:
        return model.model_validate_strings(dict(values))
    except ValidationError as error:
        raise _refusal(error, model, "the query") from error


def validate_path(adapter: TypeAdapter[Any], text: str) -> Any:
    """Return one part of the path, converted to its type; raise RequestError 404 if it cannot be converted."""
    try:
        return adapter.validate_strings(text)
    except ValidationError as error:
        raise RequestError(404, "There is nothing at this address.") from error


# of several errors in a request, the one with the lowest number is reported
PRIORITY = {"extra_forbidden": 0, "invalid_key": 0, "missing": 1}


def _refusal(error: ValidationError, model: type[BaseModel], where: str) -> RequestError:
    """Return a RequestError that says what was found, in which field, and what was expected."""
    first = min(error.errors(include_url=False), key=lambda one: PRIORITY.get(one["type"], 2))
    place, name = _path(first["loc"][:-1]) or where, str(first["loc"][-1])[:60] if first["loc"] else ""
    root = model.model_json_schema()
    if first["type"] in ("extra_forbidden", "invalid_key"):
        known = _schema_at(root, first["loc"][:-1]).get("properties", {})
        return RequestError(422, f"{place} has no field {name!r}; known: {', '.join(known) or 'nothing'}.")
    if first["type"] == "missing":
        return RequestError(422, f"{name!r} is missing in {place}.")
    value = first["input"]
    found = f"a list of {len(value)}" if isinstance(value, list) else ascii(value)[:60]
    expected = describe(_schema_at(root, first["loc"]), root)
    return RequestError(422, f"{_path(first['loc']) or where} is {found}; expected {expected}.")


def _path(loc: tuple[int | str, ...]) -> str:
    """Return the location of a field in JavaScript notation, for example ids[3] or samples[0].image."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _schema_at(root: JsonSchema, loc: tuple[int | str, ...]) -> JsonSchema:
    schema = root
    for part in loc:
        schema = _resolved(schema, root)
        schema = schema["items"] if isinstance(part, int) else schema["properties"][part]
    return _resolved(schema, root)


def _resolved(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    """Return the schema with references resolved. For a type that may be null, return the schema of its other values."""
    if "$ref" in schema:
        return _resolved(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        return _resolved(next(one for one in schema["anyOf"] if one.get("type") != "null"), root)
    return schema


def describe(schema: JsonSchema, root: JsonSchema) -> str:
    """Return an English description of a JSON schema, for error messages."""
    if any(one.get("type") == "null" for one in schema.get("anyOf", ())):
        return f"{describe(_resolved(schema, root), root)}, or null"
    schema = _resolved(schema, root)
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    match schema.get("type"):
        case "integer" | "number" as kind:
            name = "a whole number" if kind == "integer" else "a number"
            return f"{name} from {schema['minimum']:g} to {schema['maximum']:g}" if "maximum" in schema else name
        case "string":
            if "pattern" in schema:
                return str(schema.get("description", schema["pattern"]))
            return f"text of {schema.get('minLength', 0)} to {schema['maxLength']} letters" if "maxLength" in schema else "text"
        case "boolean":
            return "true or false"
        case "array":
            return f"a list of {schema.get('minItems', 0)} to {schema['maxItems']}" if "maxItems" in schema else "a list"
    return "an object"
