"""What a request may hold: each shape reads a value, refuses a wrong one in words, and describes itself for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from samekind.errors import RequestError

Schema = dict[str, Any]


class Shape(Protocol):
    """Reads one value of JSON, or the text of a query."""

    def read(self, value: Any, where: str) -> Any: ...

    def schema(self) -> Schema: ...


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    low: int = 0
    high: int = 2**31 - 1
    says: str = ""

    def read(self, value: Any, where: str) -> int:
        if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise _wrong(where, value, f"a whole number from {self.low} to {self.high}")
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high, **_said(self.says)}


@dataclass(frozen=True)
class Number:
    """A number."""

    low: float = 0.0
    high: float = 1.0
    says: str = ""

    def read(self, value: Any, where: str) -> float:
        try:
            number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else float("nan")
        except (ValueError, OverflowError):
            number = float("nan")
        if not self.low <= number <= self.high:
            raise _wrong(where, value, f"a number from {self.low:g} to {self.high:g}")
        return number

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.low, "maximum": self.high, **_said(self.says)}


@dataclass(frozen=True)
class Text:
    """Words."""

    longest: int = 200
    shortest: int = 0
    says: str = ""

    def read(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not self.shortest <= len(value) <= self.longest or not _is_text(value):
            raise _wrong(where, value, f"text of {self.shortest} to {self.longest} letters")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": self.shortest, "maxLength": self.longest, **_said(self.says)}


@dataclass(frozen=True)
class Flag:
    """Yes or no; in a query also 1 and 0."""

    says: str = ""

    def read(self, value: Any, where: str) -> bool:
        known = {True: True, False: False, "1": True, "0": False, "true": True, "false": False}
        if not isinstance(value, (bool, str)) or value not in known:
            raise _wrong(where, value, "true or false")
        return known[value]

    def schema(self) -> Schema:
        return {"type": "boolean", **_said(self.says)}


@dataclass(frozen=True)
class OneOf:
    """One word of a few."""

    words: tuple[str, ...]
    says: str = ""

    def read(self, value: Any, where: str) -> str:
        if value not in self.words:
            raise _wrong(where, value, "one of " + ", ".join(self.words))
        return str(value)

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.words), **_said(self.says)}


@dataclass(frozen=True)
class OrNone:
    """The same, or null."""

    of: Shape

    def read(self, value: Any, where: str) -> Any:
        return None if value is None else self.of.read(value, where)

    def schema(self) -> Schema:
        return {"anyOf": [self.of.schema(), {"type": "null"}]}


@dataclass(frozen=True)
class ListOf:
    """A list."""

    of: Shape
    most: int
    least: int = 0
    says: str = ""

    def read(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise _wrong(where, value, f"a list of {self.least} to {self.most}")
        return [self.of.read(one, f"{where}[{k}]") for k, one in enumerate(value)]

    def schema(self) -> Schema:
        limits = {"minItems": self.least, "maxItems": self.most}
        return {"type": "array", "items": self.of.schema(), **limits, **_said(self.says)}


@dataclass(frozen=True)
class Fields:
    """Named values; those in `needed` must be there, and no other than the known ones may be."""

    known: Mapping[str, Shape] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    says: str = ""

    def read(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "an object")
        for name in value:
            if name not in self.known:
                raise RequestError(422, f"{where} has no {str(name)[:60]!r}; known: {', '.join(self.known) or 'nothing'}.")
        for name in self.needed:
            if name not in value:
                raise RequestError(422, f"{name!r} is missing in {where}.")
        return {name: self.known[name].read(one, name) for name, one in value.items()}

    def schema(self) -> Schema:
        properties = {name: shape.schema() for name, shape in self.known.items()}
        needed = {"required": list(self.needed)} if self.needed else {}
        return {"type": "object", "properties": properties, "additionalProperties": False, **needed, **_said(self.says)}


def _said(says: str) -> Schema:
    return {"description": says} if says else {}


def _is_text(value: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF or letter == "\0" for letter in value)


def _wrong(where: str, value: Any, expected: str) -> RequestError:
    found = f"a list of {len(value)}" if isinstance(value, list) else ascii(value)[:60]
    return RequestError(422, f"{where} is {found}; expected {expected}.")
