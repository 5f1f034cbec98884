"""Each input of texts, from fit over predict, query, save and load to the page; and damaged input, on the command line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.preprocessing.test_text_input import sentences
from typer.testing import CliRunner

from samekind import SemiSupervisedClassifier
from samekind.cli import app
from samekind.project.fit import FitConfig, fit, refit
from samekind.server.routes.items import ItemsRequest, OrderQuery, order_items, show_item, show_items
from samekind.server.session import Session
from samekind.server.transfer.exporters import as_csv

BODY, TOPICS, CLASSES = sentences(40)
NEW, _, NEW_CLASSES = sentences(12, seed=1)
TABLE = ["--text", "body", "--label-column", "topic"]


def table(folder: Path, suffix: str) -> tuple[Path, Path]:
    """Write a table of all texts with a few labels, and one of new texts; return their paths."""
    paths = []
    for name, columns in {"all": {"body": BODY, "topic": TOPICS}, "new": {"body": NEW}}.items():
        frame, path = pd.DataFrame(columns), folder / f"{name}{suffix}"
        if suffix == ".csv":
            frame.to_csv(path, index=False)
        elif suffix == ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)
        paths.append(path)
    return paths[0], paths[1]


def text_files(folder: Path, _: str) -> tuple[Path, Path]:
    """Write a folder of .txt files with labels.csv, and one of new texts; return their paths."""
    for name, texts in {"all": BODY, "new": NEW}.items():
        (folder / name).mkdir()
        for i, text in enumerate(texts):
            (folder / name / f"{i:02d}.txt").write_text(text)
    rows = [(f"{i:02d}.txt", topic) for i, topic in enumerate(TOPICS) if topic]
    with (folder / "all" / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    return folder / "all", folder / "new"


def run(*arguments: object) -> str:
    """Run a command that must succeed; return what it printed on stdout."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def column(path: Path, name: str) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("write", "suffix", "options"),
    [(table, ".csv", TABLE), (table, ".jsonl", TABLE), (table, ".parquet", TABLE), (text_files, "", [])],
    ids=["csv", "jsonl", "parquet", "txt"],
)
def test_files_of_texts_go_from_fit_to_the_page(
    tmp_path: Path, write: Callable[[Path, str], tuple[Path, Path]], suffix: str, options: list[str]
) -> None:
    data, new = write(tmp_path, suffix)
    folder = tmp_path / "run"
    assert run("fit", data, *options, "--out", folder, "--encoder", "tfidf") == f"{folder / 'labels.csv'}\n"
    assert np.mean(np.array(column(folder / "labels.csv", "label")) == CLASSES) > 0.95
    run("predict", folder, new, "--out", tmp_path / "new.csv.out")
    assert np.mean(np.array(column(tmp_path / "new.csv.out", "label")) == NEW_CLASSES) > 0.9
    run("query", folder, new, "--items", "3", "-k", "4", "--out", tmp_path / "query")
    assert len(column(tmp_path / "query.csv", "similarity")) == 4 * (1 + len(NEW))
    run("query", folder, "--text", "plums and peach", "--text", "zinc", "-k", "3", "--out", tmp_path / "typed")
    assert column(tmp_path / "typed.csv", "label") == ["fruit"] * 3 + ["metal"] * 3
    assert set(column(tmp_path / "typed.csv", "text")) <= set(BODY)
    loaded = SemiSupervisedClassifier.load(folder / "model")
    assert np.mean(loaded.predict(NEW) == NEW_CLASSES) > 0.9
    with closing(Session(folder)) as session:
        order = np.frombuffer(order_items(session, OrderQuery(q="SELL"), {}).body, dtype="<u4")  # type: ignore[arg-type]
        (card,) = show_items(session, ItemsRequest(ids=[int(order[0])]))["items"]
        assert len(order) == len(BODY) and card["text"] == BODY[order[0]]
        assert show_item(session, 3)["full_text"] == BODY[3]
        assert len(b"".join(as_csv(session, "both", "all")).splitlines()) == 1 + len(BODY)


def test_a_fit_on_one_column_of_text_logs_that_there_is_an_option_for_it(tmp_path: Path) -> None:
    data, _ = table(tmp_path, ".csv")
    logged: list[str] = []
    data.write_text(data.read_text(encoding="utf-8") + '" ",\n', encoding="utf-8")
    fit(FitConfig(str(data), label_column="topic"), tmp_path / "run", log=logged.append)
    assert (
        "the only feature is the text in 'body': with --text body, the page shows it, and a query may be typed words" in logged
    )
    fit(FitConfig(str(data), label_column="topic", text="body"), tmp_path / "texts", log=logged.append)
    assert any("(texts, 1 of them empty)" in line for line in logged)


@pytest.mark.parametrize("make", [list, pd.Series], ids=["list", "series"])
def test_texts_in_memory_go_from_fit_to_load(tmp_path: Path, make: Any) -> None:
    model = SemiSupervisedClassifier(encoder="tfidf", random_state=0).fit(make(BODY), TOPICS)
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(make(NEW)), model.predict_proba(make(NEW)))
    assert np.mean(loaded.predict(make(NEW)) == NEW_CLASSES) > 0.9
    _, nearest = loaded.kneighbors(make(NEW), 3)
    assert np.mean(np.array(CLASSES)[nearest] == np.array(NEW_CLASSES)[:, None]) > 0.8


def test_a_table_without_labels_is_served_and_labelled_texts_are_fitted(tmp_path: Path) -> None:
    from samekind.server.unlabelled_project import resolve_run

    frame = pd.DataFrame({"body": BODY})
    frame.to_csv(tmp_path / "all.csv", index=False)
    folder = resolve_run(tmp_path / "all.csv", tmp_path / "run", encoder="tfidf", text="body")
    with closing(Session(folder)) as session:
        assert not session.predictions.trained and session.predictions.z.shape[0] == len(BODY)
        (card,) = show_items(session, ItemsRequest(ids=[5]))["items"]
        assert card["text"] == BODY[5] and card["pred"] is None


def test_a_refit_with_more_labels_reads_the_same_texts(tmp_path: Path) -> None:
    data, _ = table(tmp_path, ".csv")
    run("fit", data, *TABLE, "--out", tmp_path / "run", "--encoder", "tfidf")
    model, read = refit(tmp_path / "run", lambda data: [*CLASSES[:20], *[None] * 20], tmp_path / "again")
    assert read.x.tolist() == BODY and np.mean(model.transduction_ == CLASSES) > 0.95
    assert column(tmp_path / "again" / "labels.csv", "given").count("yes") == 20


def test_strange_texts_are_all_predicted(tmp_path: Path) -> None:
    strange = [
        "",
        "   ",
        "\U0001f600\U0001f3c0",
        "<div><p>pear &amp; plum</p></div>",
        "鉄と銅を売ります",
        "مرحبا",
        "x" * 5000,
        "pear " * 200_000,
    ]
    rows = [*zip(BODY, TOPICS, strict=True), *((text, None) for text in strange)]
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps({"body": body, "topic": topic}) + "\n" for body, topic in rows))
    run("fit", path, *TABLE, "--out", tmp_path / "run", "--encoder", "use,tfidf")
    labels = column(tmp_path / "run" / "labels.csv", "label")
    assert len(labels) == len(rows) and set(labels) == {"fruit", "metal"}
    assert labels[len(BODY) + 3] == labels[-1] == "fruit" and labels[len(BODY) + 4] == "metal"


@pytest.mark.parametrize(
    ("name", "blob", "options", "message"),
    [
        ("a.csv", b"body,topic\nGr\xfc\xdfe,a\n", TABLE, "is not UTF-8 text"),
        ("a.csv", "body,topic\nx,a\n".encode("utf-16-le"), TABLE, "NUL bytes"),
        ("a.csv", b'body,topic\n"x,a\ny,b\n', TABLE, "never closed"),
        ("a.csv", b"text,topic\nx,a\n", TABLE, "no text column 'body'; known: text, topic"),
        ("a.csv", b"bdy,topic\nx,a\n", TABLE, "no text column 'body'; did you mean 'bdy'?"),
        ("a.csv", b"body,topics\nx,a\n", TABLE, "no column 'topic'; did you mean 'topics'?"),
        ("a.csv", b"body,topic\nx,\ny,\n", TABLE, "none of the 2 items has a label"),
        ("a.csv", b"body,topic\nw,a\nx,b\ny,a\nz,b\n", TABLE[:2], "Is it 'topic'? Pass --label-column topic"),
        ("a.csv", b"", TABLE, "is empty"),
        ("a.jsonl", b'{"body": "x", "topic": "a"}\n{"body": "y"\n', TABLE, "line 2 is not JSON"),
        ("a.jsonl", b'{"body": "Gr\xfc\xdfe"}\n', TABLE, "is not UTF-8 text"),
        ("a.parquet", b"PAR1", TABLE, "cannot be read as Parquet"),
        ("a/b/1.txt", b"\x00\x01", [], "none of the 1 texts can be read"),
        ("a/b/1.txt", b"\xff", ["--strict"], "not UTF-8 text"),
    ],
)
def test_damaged_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, name: str, blob: bytes, options: list[str], message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blob)
    data = tmp_path / Path(name).parts[0]
    result = CliRunner().invoke(app, ["fit", str(data), *options, "--out", str(tmp_path / "run")])
    lines = result.stderr.strip().splitlines()
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert message in lines[-1] and lines[-1].startswith("samekind: ") and not (tmp_path / "run").exists()
