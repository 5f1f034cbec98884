"""Calls of the package by today's names, for behaviour_snapshot.py: the estimator, the command line and the HTTP API.

A file of names (`Names`) says what is called differently in another version, so that the same cases can record it.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Outputs = dict[str, Any]  # arrays, or values that JSON can hold
Table = dict[str, str]

PACKAGE = "samekind"
TIMEOUT = 120.0  # seconds
HEX_ID = re.compile(r"[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{32}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?")
# Keys whose values depend on the clock or are sentences for people.
NOT_COMPARED = {"seconds", "eta_s", "log_tail", "detail", "title", "reason", "missing", "created", "ts", "labelled_at"}
HASHES = {"image_key", "hash"}  # keys whose values look like random ids but are content hashes, which are compared
STORE_TABLES = ("meta", "image", "class", "batch", "request", "event", "state")


@dataclass(frozen=True)
class Names:
    """Names in another version of the package. A name that is not listed is today's.

    Names that a caller uses map today's name to the other one. Keys and values that the package returns map the other name to
    today's. A key may be given with the key above it, `above.key`, where the one above is today's and empty at the top.
    """

    arguments: Table = field(default_factory=dict)
    views: Table = field(default_factory=dict)
    methods: Table = field(default_factory=dict)
    settings: Table = field(default_factory=dict)
    attributes: Table = field(default_factory=dict)
    options: Table = field(default_factory=dict)
    files: Table = field(default_factory=dict)
    paths: Table = field(default_factory=dict)
    fields: Table = field(default_factory=dict)
    returned_keys: Table = field(default_factory=dict)
    returned_values: Table = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Names:
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def method(self, name: str) -> str:
        return "+".join(self.methods.get(part, part) for part in name.split("+"))

    def path(self, path: str) -> str:
        """Return the path of a request, such as /api/classes/0, where a listed path may have more parts after it."""
        for today, other in self.paths.items():
            if path == today or path.startswith(f"{today}/"):
                return other + path.removeprefix(today)
        return path

    def body(self, value: Any) -> Any:
        """Return a JSON value to send with the other names of its fields."""
        if isinstance(value, Mapping):
            return {self.fields.get(name, name): self.body(one) for name, one in value.items()}
        return [self.body(one) for one in value] if isinstance(value, list) else value

    def returned_key(self, above: str, key: str) -> str:
        return self.returned_keys.get(f"{above}.{key}", self.returned_keys.get(key, key))


class Normalizer:
    """Replaces what differs between two runs of the same code: times, folders, random ids; and other names by today's."""

    def __init__(self, folder: Path, names: Names) -> None:
        self._folder = str(folder)
        self._names = names
        self._ids: dict[str, str] = {}

    def json(self, value: Any, key: str = "") -> Any:
        """Return a JSON value with today's keys and values, ids by order of appearance, without times and folders."""
        if key in NOT_COMPARED:
            return f"<{key}>" if value is not None else None
        if isinstance(value, Mapping):
            today = {name: self._names.returned_key(key, str(name)) for name in value}
            return {today[name]: self.json(one, today[name]) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(one, key) for one in value]
        return self._text(value, key) if isinstance(value, str) else value

    def table(self, text: str) -> list[list[str]]:
        """Return the cells of a CSV without its header, whose names may change."""
        return [[self._text(cell) for cell in row] for row in csv.reader(io.StringIO(text))][1:]

    def _text(self, value: str, key: str = "") -> str:
        if value[:1] in ("{", "["):
            with suppress(ValueError):
                return json.dumps(self.json(json.loads(value)), sort_keys=True)
        if key not in HASHES and HEX_ID.fullmatch(value):
            return self._ids.setdefault(value, f"<id {len(self._ids) + 1}>")
        today = self._names.returned_values.get(value, value)
        return TIME.sub("<time>", today.replace(self._folder, "<folder>"))


class Client:
    """Calls the package by today's names, in a working folder."""

    def __init__(self, folder: Path, names: Names) -> None:
        self.folder, self.names = folder, names
        self.normalizer = Normalizer(folder, names)

    # ------------------------------------------------------------ estimator

    def classifier(self, method: str | None = None, settings: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        arguments.setdefault("random_state", 7)
        if "views" in arguments:
            arguments["views"] = self.names.views.get(arguments["views"], arguments["views"])
        if method is not None:
            arguments["method"] = self.names.method(method)
        if settings is not None:
            arguments["settings"] = {self.names.settings.get(name, name): value for name, value in settings.items()}
        return self._class()(**{self.names.arguments.get(name, name): value for name, value in arguments.items()})

    def load(self, folder: Path) -> Any:
        return self._class().load(folder)

    def attribute(self, owner: Any, name: str) -> Any:
        return getattr(owner, self.names.attributes.get(name, name))

    def fit(self, model: Any, x: Any, y: Any, new: Any) -> Outputs:
        """Fit a model and return its predictions and the record of its training."""
        model.fit(x, y)
        return {**self.predictions(model, new), **self._training(model)}

    def predictions(self, model: Any, new: Any) -> Outputs:
        """Return everything that a fitted model computes for new samples and for those it was fitted on."""
        features, similarity = model.transform(new), self.attribute(model, "similarity")
        found: Outputs = {
            "classes": _without_objects(model.classes_),
            "transduction": _without_objects(model.transduction_),
            "predict": _without_objects(model.predict(new)),
            "predict_proba": model.predict_proba(new),
            "transform": features,
            "fitted_proba": self.attribute(model, "fitted_proba")(),
            "fitted_features": self.attribute(model, "fitted_features")(),
            "predict_proba_from_features": self.attribute(model, "predict_proba_from_features")(features),
            "similarity": similarity(new),
            "similarity_to_others": similarity(new[:5], new[5:12]),
            "similarity_symmetric": similarity(new, symmetric=True),
            "log_odds": self.attribute(model, "log_odds")(new),
            "kernel": similarity(new[:6], psd=True),
        }
        variants: dict[str, dict[str, Any]] = {"": {}, "_symmetric": {"symmetric": True}, "_few": {"candidates": 12}}
        for name, options in variants.items():
            found[f"kneighbors{name}"], found[f"kneighbors{name}_ids"] = model.kneighbors(new, 5, **options)
        index = self.attribute(model, "index")()
        result = self.attribute(index, "search_by_example")([0, 4], k=6, not_ids=[1])
        found["search_by_example"] = [[int(i), float(w)] for i, w in result.pairs()]
        return found

    def _class(self) -> Any:
        return importlib.import_module(PACKAGE).SemiSupervisedClassifier

    def _training(self, model: Any) -> Outputs:
        """Return steps, epochs and the numbers of each entry of the history, sorted: the order of loss terms is free."""
        entries = [_sort(np.array(list(_numbers(entry)), dtype=np.float64)) for entry in model.history_]
        return {
            "steps": {"n_iter": int(model.n_iter_), "epochs": float(model.epochs_)},
            "history": np.concatenate([np.empty(0), *entries]),
        }

    # ------------------------------------------------------------ command line

    def command(self, verb: str, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", PACKAGE, *verb.split(), *map(str, arguments)]

    def options(self, **values: Any) -> list[str]:
        """Return `--name value` for each value; True gives the name alone, a list repeats the option."""
        arguments: list[str] = []
        for name, value in values.items():
            option = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            for one in value if isinstance(value, list) else [value]:
                arguments += [self.names.options.get(option, option), *([] if one is True else [str(one)])]
        return arguments

    def run(self, verb: str, *arguments: str | Path) -> None:
        done = subprocess.run(self.command(verb, *arguments), cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            line = f"{verb} {' '.join(map(str, arguments))}"
            raise RuntimeError(f"{line} ended with {done.returncode}:\n{done.stderr[-3000:]}")

    def file(self, run: Path, name: str) -> Path:
        """Return the path of a file of a run by its name of today."""
        return run / self.names.files.get(name, name)

    def table(self, path: Path) -> list[list[str]]:
        return self.normalizer.table(path.read_text(encoding="utf-8"))

    # ------------------------------------------------------------ server

    @contextmanager
    def serve(self, data: Path, *arguments: str) -> Iterator[Server]:
        """Start `serve` on a run or on data, and stop it at the end."""
        token = self.folder / f"token of {data.name}"
        command = self.command("serve", data, *arguments, *self.options(no_browser=True, token_file=token))
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                assert child.stdout is not None
                line = child.stdout.readline()
                if "#" not in line:
                    errors.seek(0)
                    raise RuntimeError(f"the server did not start: {errors.read()[-3000:]}")
                yield Server(line.split("#")[0].strip().rstrip("/"), token.read_text(), self.names, self.normalizer)
            finally:
                child.terminate()
                child.wait(TIMEOUT)

    def store(self, run: Path, hashed: Sequence[int] = ()) -> Any:
        """Return all tables of the label store, columns by position, and the content hashes of the items in `hashed`.

        The server hashes files in the background, so the hashes of other items are left out.
        """
        path = self.file(run, "serve/labels.sqlite")
        hashes: dict[int, str] = {}
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            for _ in poll("the content hashes"):
                hashes = dict(db.execute("SELECT id, sha256 FROM image WHERE sha256 IS NOT NULL"))
                if all(one in hashes for one in hashed):
                    break
            tables = {}
            for name in STORE_TABLES:
                cursor = db.execute(f'SELECT * FROM "{name}" ORDER BY 1')
                kept = [position for position, column in enumerate(cursor.description) if column[0] != "sha256"]
                tables[name] = [[self.normalizer.json(row[position]) for position in kept] for row in cursor]
        db.close()
        return {**tables, "contents": [hashes[one] for one in hashed]}


class Server:
    """A script that uses the HTTP API with the token, and logs its requests and the responses."""

    def __init__(self, url: str, token: str, names: Names, normalizer: Normalizer) -> None:
        self._url, self._token, self._names, self._normalizer = url, token, names, normalizer
        self.log: list[Any] = []

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, **query)

    def post(self, path: str, **body: Any) -> Any:
        return self.request("POST", path, body)

    def request(self, method: str, path: str, body: Any = None, *, log: bool = True, **query: Any) -> Any:
        """Return the JSON of a response with today's keys."""
        status, content, _ = self._send(method, path, query, body)
        response = self._normalizer.json(json.loads(content)) if content else None
        if log:
            sent = f"{len(body)} bytes" if isinstance(body, bytes) else body
            self.log.append({"request": [method, path, query, sent], "status": status, "response": response})
        return response

    def array(self, path: str, dtype: str, **query: Any) -> Array:
        status, content, _ = self._send("GET", path, query, None)
        if status != 200:
            raise RuntimeError(f"{path} {query} got {status}: {content[:300]!r}")
        return np.frombuffer(content, dtype)

    def export(self, **query: Any) -> str:
        _, content, _ = self._send("GET", "/api/export", query, None)
        return content.decode("utf-8")

    def map(self) -> Array:
        """Wait until the final map has been computed in the background, and return it."""
        for _ in poll("the map"):
            _, content, headers = self._send("GET", "/api/map", {}, None)
            if self._normalizer.json(headers.get("x-layout")) == "neighbors":
                return np.frombuffer(content, "<f4").reshape(-1, 2)
        raise AssertionError

    def refit(self, mode: str) -> None:
        """Start a refit and wait for its end."""
        self.request("POST", "/api/fit", {"mode": mode}, log=False)
        for _ in poll("the refit"):
            if self.request("GET", "/api/job", log=False)["state"] != "running":
                break
        self.get("/api/job")

    def _send(self, method: str, path: str, query: Mapping[str, Any], body: Any) -> tuple[int, bytes, dict[str, str]]:
        parameters = urllib.parse.urlencode(self._names.body(query))
        content = body if isinstance(body, bytes) else json.dumps(self._names.body(body or {})).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        url = f"{self._url}{self._names.path(path)}?{parameters}"
        request = urllib.request.Request(url, None if method == "GET" else content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                return response.status, response.read(), {name.lower(): value for name, value in response.headers.items()}
        except urllib.error.HTTPError as error:
            return error.code, error.read(), {}


def poll(name: str) -> Iterator[None]:
    """Yield every tenth of a second; raise an error after the timeout."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        yield
        time.sleep(0.1)
    raise TimeoutError(f"{name} took more than {TIMEOUT:.0f} s")


def _without_objects(values: Any) -> Array:
    """Return an array that can be saved without pickle."""
    array = np.asarray(values)
    return array.astype(str) if array.dtype == object else array


def _sort(values: Array) -> Array:
    """Sort numbers, with -0.0 before 0.0, so that the bytes do not depend on the order of the input."""
    sorted_values: Array = values[np.lexsort((~np.signbit(values), values))]
    return sorted_values


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, int | float):
        yield float(value)
