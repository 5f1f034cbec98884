"""Odd inputs of texts for attack_inputs.py: files of JSON lines, tables with a text column, folders of .txt files, lists."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from samekind import SemiSupervisedClassifier
from samekind.data.readers.reader import Encoding, TextLayout
from samekind.data.user_data import open_data, open_like
from samekind.errors import SamekindError

SPARSE = 1 << 40  # bytes of a file that occupies no space on the disk
N_TEXTS = 20
GOOD_LINES = "".join(f'{{"text": "sample number {k} about {k % 2}", "label": "c{k % 2}"}}\n' for k in range(N_TEXTS))
LIKE_A_FOLDER = Encoding("texts", "text_folder", (1,), "str", text=TextLayout())


def json_lines() -> dict[str, bytes]:
    """Return odd files of JSON lines by name; each has a column "text" where it can be read."""
    texts = {
        "no_object": '5\n"text"\n',
        "list": '[{"text": "a"}]\n',
        "deep": '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
        "digits": f'{{"text": {"9" * 5000}}}\n' * 2,
        "exponent": '{"text": 1e999999, "label": NaN}\n{"text": -Infinity}\n',
        "surrogate": '{"text": "\\ud800", "label": "\\udfff"}\n{"text": "b", "label": "x"}\n',
        "surrogate_key": '{"text": "a", "\\ud800": 1}\n',
        "nul": '{"text": "a\\u0000b", "label": "\\u0000"}\n{"text": "b"}\n',
        "raw_nul": '{"text": "a\0b"}\n',
        "keys": "".join(f'{{"k{i}": 1, "text": "a"}}\n' for i in range(120_000)),
        "wide": '{"text": "a", ' + ", ".join(f'"k{i}": {i}' for i in range(90_000)) + "}\n",
        "nested": '{"text": {"a": [1, {"b": null}]}, "label": {"x": 1}}\n{"text": [], "label": [1]}\n',
        "labels": "".join(f'{{"text": "t {i}", "label": {i}}}\n' for i in range(40_000)),
        "types": '{"text": true, "label": true}\n{"text": null, "label": 1}\n{"text": 1.5, "label": "1"}\n',
        "fractions": '{"text": "a", "label": 0.5}\n{"text": "b", "label": 1.5}\n',
        "twice": '{"text": "a", "text": "b", "label": "x"}\n',
        "capitals": '{"Text": "a", "text": "b", "TEXT": "c"}\n',
        "long": f'{{"text": "{"a" * 5_000_000}"}}\n',
        "ids": '{"text": "a", "id": [1]}\n{"text": "b", "id": {"a": 2}}\n{"text": "c", "id": null}\n',
        "blank": "\n \n\t\n",
        "cut": GOOD_LINES[:-20],
        "comma": GOOD_LINES.replace("}\n", "},\n"),
        "empty_texts": '{"text": ""}\n{"text": " "}\n',
        "empty": "",
    }
    files = {f"{name}.jsonl": text.encode() for name, text in texts.items()}
    files |= {f"{name}.ndjson": GOOD_LINES.encode(name) for name in ("utf-16-le", "utf-16", "utf-32", "latin-1")}
    rng = random.Random(0)
    damaged = {f"damaged{k}.jsonl": _change(GOOD_LINES.encode(), rng) for k in range(40)}
    return files | damaged | {"bytes.jsonl": rng.randbytes(3000)}


def text_files() -> dict[str, bytes]:
    """Return odd .txt files by name."""
    rng = random.Random(0)
    return {
        "plain.txt": b"a plain text",
        "empty.txt": b"",
        "blank.txt": b" \n\n\t" * 1000,
        "nul.txt": b"a\0b",
        "bytes.txt": rng.randbytes(3000),
        "latin.txt": "\u00e9t\u00e9".encode("latin-1"),
        "mark.txt": "\ufeffmark".encode(),
        "utf16.txt": "text".encode("utf-16"),
        "utf16_odd.txt": "text".encode("utf-16")[:-1],
        "utf16_le.txt": "text".encode("utf-16-le"),
        "utf32.txt": "text".encode("utf-32"),
        "cut.txt": "\u20ac".encode()[:-1],
        "controls.txt": bytes(range(1, 32)) * 100,
        "one_word.txt": b"a" * 3_000_000,
        "marks.txt": ("e" + "\u0301" * 100_000).encode(),
        "right_to_left.txt": "\u202e\u2066abc".encode(),
        "han.txt": ("\u6587" * 300_000).encode(),
    }


def lists() -> dict[str, tuple[Any, Any]]:
    """Return odd lists of texts, each with labels, by name."""
    good = [f"sample number {k} about {'cats' if k % 2 else 'trains and stations'}" for k in range(N_TEXTS)]
    y = ["ab"[k % 2] if k < 8 else None for k in range(N_TEXTS)]
    odd: dict[str, Any] = {
        "empty texts": [""] * N_TEXTS,
        "blanks": [" \n"] * N_TEXTS,
        "one text": ["the same"] * N_TEXTS,
        "surrogates": ["\ud800"] * 2 + good[2:],
        "nul": ["a\0b", *good[1:]],
        "numbers among texts": [5, *good[1:]],
        "bytes": [b"text", *good[1:]],
        "missing": [None, float("nan"), *good[2:]],
        "all missing": [None] * N_TEXTS,
        "lists of words": [["a", "b"], *good[1:]],
        "one string": "a single string",
        "no texts": [],
        "two texts": good[:2],
        "two dimensions": np.array([good, good]),
        "fixed length": np.array(good),
        "bytes of fixed length": np.array(good, dtype="S20"),
        "objects": np.array(good, dtype=object),
        "a long word": ["x" * 2_000_000, *good[1:]],
        "many words": [" ".join(map(str, range(200_000))), *good[1:]],
        "marks": ["e" + "\u0301" * 100_000, *good[1:]],
        "emoji": ["\U0001f468\u200d\U0001f469\u200d\U0001f467" * 1000, *good[1:]],
        "paths": ["nosuch.jpg", *good[1:]],
        "a set": set(good),
        "a generator": iter(good),
        "a dict": dict.fromkeys(good),
    }
    return {name: (X, y[: len(X)] if hasattr(X, "__len__") and not isinstance(X, str) else y) for name, X in odd.items()}


def fit_texts(X: Any, y: Any) -> None:
    """Fit texts on TF-IDF, and predict a part of them and an odd text."""
    model = SemiSupervisedClassifier("lgc", encoder="tfidf", random_state=0).fit(X, y)
    model.predict([*list(X)[:3], "", "\0", "\u6587" * 1000])


def read_as_texts(path: Path) -> None:
    """Read a table by its column "text", and again as new data for a model of texts."""
    reads: list[Callable[[], object]] = [
        partial(open_data, path, text="text", cache=path.parent / "cache"),
        partial(open_like, path, LIKE_A_FOLDER),
    ]
    caught: list[SamekindError] = []
    for read in reads:
        try:
            read()
        except SamekindError as error:
            caught.append(error)
    if caught:
        raise max(caught, key=lambda error: len(str(error)))


def text_cases(folder: Path) -> dict[str, Callable[[], object]]:
    """Write the files of all cases; return a function that reads each one."""
    found: dict[str, Callable[[], object]] = {}
    for name, blob in json_lines().items():
        (folder / name).write_bytes(blob)
        found[f"{name} as numbers"] = partial(open_data, folder / name, cache=folder / "cache")
        found[name] = partial(read_as_texts, folder / name)
    (folder / "good.jsonl").write_text(GOOD_LINES)
    found["column of another name"] = partial(open_data, folder / "good.jsonl", text="nosuch", cache=folder / "cache")
    found["label as text"] = partial(open_data, folder / "good.jsonl", text="label", cache=folder / "cache")
    for place, path in _unusual_files(folder, ".jsonl"):
        found[f"{place}.jsonl"] = partial(read_as_texts, path)
    texts = folder / "texts"
    texts.mkdir()
    for name, blob in text_files().items():
        (texts / name).write_bytes(blob)
        alone = folder / f"only_{name}"
        alone.mkdir()
        (alone / name).write_bytes(blob)
        found[f"folder with {name} only"] = partial(open_data, alone, cache=folder / "cache")
        found[name] = partial(open_like, texts / name, LIKE_A_FOLDER)
        found[f"{name} in a list"] = partial(open_like, [texts / name], LIKE_A_FOLDER, strict=True)
    for place, path in _unusual_files(texts, ".txt"):
        found[f"{place}.txt"] = partial(open_like, path, LIKE_A_FOLDER)
        found[f"{place}.txt in a list"] = partial(open_like, [path, texts / "plain.txt"], LIKE_A_FOLDER)
    (texts / "folder.txt").mkdir()
    (texts / os.fsdecode(b"\xff\xfe.txt")).write_text("a name that is not UTF-8")
    found["folder of all odd texts"] = partial(open_data, texts, cache=folder / "cache")
    found["folder of all odd texts, strict"] = partial(open_data, texts, strict=True, cache=folder / "cache")
    (folder / "l_texts.csv").write_text("path,label\nplain.txt,a\nnosuch.txt,b\n../texts/nul.txt,c\n")
    found["labels of odd texts"] = partial(open_data, texts, labels=folder / "l_texts.csv", cache=folder / "cache")
    return found | {f"a list with {name}": partial(fit_texts, *one) for name, one in lists().items()}


def _unusual_files(folder: Path, suffix: str) -> Iterator[tuple[str, Path]]:
    """Make a pipe, a link to itself, a link to nothing, a link to a device and a huge sparse file; yield their paths."""
    made = {name: folder / f"{name.replace(' ', '_')}{suffix}" for name in ("pipe", "loop", "broken", "zeros", "sparse")}
    os.mkfifo(made["pipe"])
    made["loop"].symlink_to(made["loop"].name)
    made["broken"].symlink_to("nosuch")
    made["zeros"].symlink_to("/dev/zero")
    with made["sparse"].open("wb") as file:
        file.truncate(SPARSE)
    yield from made.items()
    yield "name too long", folder / ("a" * 300 + suffix)
    yield "name with NUL", folder / f"a\0b{suffix}"


def _change(blob: bytes, rng: random.Random) -> bytes:
    """Return the bytes with some flipped, removed or repeated."""
    data = bytearray(blob)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 20)]
            case _:
                data[at:at] = data[at : at + rng.randint(1, 200)]
    return bytes(data)
