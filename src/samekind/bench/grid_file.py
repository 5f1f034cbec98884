"""Grid files: a benchmark described by a user in TOML or JSON. docs/bench.md has an example."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from samekind.bench.grid import Bench, GridColumn, GridRow, grid_row
from samekind.errors import SettingError, did_you_mean

NOT_IN_FILES = {"columns", "published", "presets", "scale"}  # fields of Bench that a grid file cannot set
# Keys of a grid file that have the same name as a field of Bench, and are copied to it.
COPIED = ("splits", "options", "measure", "test", "reference", "first_seed")


def read_grid_file(path: Path) -> Bench:
    """Return the bench that a grid file describes. Paths of datasets in it are relative to the folder of the file."""
    content = _parse(path)
    _require_known_keys(content, {*_field_names(Bench), "data", "labels", "methods", "budget"} - NOT_IN_FILES, str(path))
    datasets = [_resolve_data(str(name), path.parent) for name in _required_list(content, "data", path)]
    labels = _required_list(content, "labels", path)
    budgets = _required_list(content, "budget", path) if "budget" in content else [None]
    return Bench(
        name=str(content.get("name", path.stem)),
        title=str(content.get("title", path.stem)),
        columns=tuple(GridColumn(data, int(n), budget) for data in datasets for n in labels for budget in budgets),
        rows=(
            *(grid_row(str(name)) for name in content.get("methods", [])),
            *(_parse_row(one, path) for one in content.get("rows", [])),
        ),
        **{name: content[name] for name in COPIED if name in content},
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = json.loads(text) if path.suffix == ".json" else _parse_toml(text)
    except OSError as error:
        raise SettingError(f"{path} cannot be read ({error.strerror}). Expected a grid file, .toml or .json.") from error
    except ValueError as error:  # the parsers of JSON and TOML raise subclasses of ValueError
        raise SettingError(
            f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}. Correct the file at this place."
        ) from error
    if not isinstance(content, dict):
        raise SettingError(f"{path} has no settings; expected data, labels and methods. docs/bench.md has an example.")
    return content


def _parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    return toml.loads(text)


def _parse_row(content: Mapping[str, Any], path: Path) -> GridRow:
    _require_known_keys(content, _field_names(GridRow), f"a row of {path}")
    if "method" not in content:
        raise SettingError(f"a row of {path} names no method. Add one, such as method = 'mean_teacher'.")
    return GridRow(**{"name": content["method"], **content})


def _required_list(content: Mapping[str, Any], name: str, path: Path) -> list[Any]:
    if name not in content:
        raise SettingError(f"{path} has no {name}; expected {name} = ... in it. docs/bench.md has an example.")
    return list(content[name]) if isinstance(content[name], list) else [content[name]]


def _require_known_keys(content: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in content:
        if key not in known:
            raise SettingError(f"{where} has an unknown key {key!r}; {did_you_mean(key, known)}")


def _field_names(cls: Any) -> set[str]:
    return {one.name for one in fields(cls)}


def _resolve_data(data: str, folder: Path) -> str:
    """Return the absolute path of `data` if this file or folder exists in `folder`.

    Otherwise return `data`, the name of a dataset.
    """
    path = folder / data
    return str(path.resolve()) if path.exists() else data
