"""Tables with a column of texts: which columns are read, and what a damaged table is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from samekind.data.readers import delimited_text
from samekind.data.readers.reader import UserData
from samekind.data.user_data import open_data, open_like
from samekind.errors import DataError, LabelError, SettingError

ROWS = [("7", "Rain in the north", "weather"), ("8", "Goal in the last minute", "sport"), ("9", "", "")]
CSV = "id,body,topic\n" + "".join(",".join(row) + "\n" for row in ROWS)


def read(path: Path, **how: Any) -> UserData:
    return open_data(path, cache=path.parent / "cache", **how)


def written(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def by_suffix(folder: Path, suffix: str) -> Path:
    path = folder / f"t{suffix}"
    table = pd.DataFrame(ROWS, columns=["id", "body", "topic"]).replace("", None)
    if suffix == ".parquet":
        table.to_parquet(path)
    elif suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_texts_labels_and_names_come_from_columns(tmp_path: Path, suffix: str) -> None:
    data = read(by_suffix(tmp_path, suffix), text="body", label_column="Topic")
    assert data.x.tolist() == ["Rain in the north", "Goal in the last minute", ""]
    assert data.y.tolist() == ["weather", "sport", None] and data.names == ("7", "8", "9")
    assert data.kind == "texts" and data.encoding.name_column == "id" and data.skipped == ()


def test_a_new_table_needs_only_the_column_of_the_texts(tmp_path: Path) -> None:
    encoding = read(written(tmp_path, CSV), text="BODY", label_column="topic").encoding
    new = open_like(written(tmp_path, "body,more\nSnow,1\n", "new.csv"), encoding)
    assert new.x.tolist() == ["Snow"] and new.names == ("0",) and new.y.tolist() == [None]
    with pytest.raises(DataError, match=r"new\.csv has no text column 'body'; did you mean 'bdy'"):
        open_like(written(tmp_path, "bdy,more\nSnow,1\n", "new.csv"), encoding)


def test_labels_may_come_from_another_file(tmp_path: Path) -> None:
    labels = written(tmp_path, "id,class\n8,ball\n", "labels.csv")
    assert read(written(tmp_path, CSV), text="body", labels=labels).y.tolist() == [None, "ball", None]


def test_a_cell_may_hold_ten_megabytes_lines_quotes_and_other_scripts(tmp_path: Path) -> None:
    texts = ["wide " * 2_000_000, 'He said "no",\nand left', "你好，世界 🙂", "<b>bold</b> &amp; more", ""]
    texts.append("")
    table = pd.DataFrame({"body": texts})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    assert read(tmp_path / "t.csv", text="body").x.tolist() == read(tmp_path / "t.jsonl", text="body").x.tolist() == texts


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(tmp_path: Path, encoding: str) -> None:
    lines = '{"body": "Grüße"}\n{"body": "Ende"}\n'
    assert read(written(tmp_path, "body\nGrüße\nEnde\n", encoding=encoding), text="body").x.tolist() == ["Grüße", "Ende"]
    assert read(written(tmp_path, lines, "t.jsonl", encoding), text="body").x.tolist() == ["Grüße", "Ende"]


def test_a_row_with_another_number_of_cells_is_skipped(tmp_path: Path) -> None:
    data = read(written(tmp_path, "body,topic\na b,x\na, b,c,d\n"), text="body")
    assert data.x.tolist() == ["a b"] and str(data.skipped[0]) == "'1': line 3: 4 cells; expected 2"


@pytest.mark.parametrize(
    ("content", "name", "how", "message"),
    [
        ("body,topic\na,b\n", "t.csv", {"text": "bodi"}, "no text column 'bodi'; did you mean 'body'?"),
        ("body,topic\na,b\n", "t.csv", {"text": "body", "label_column": "topik"}, "no column 'topik'; did you mean 'topic'?"),
        ("body,topic\na,b\n", "t.csv", {"text": "body", "label_column": "body"}, "named both as the text and as the label"),
        ("body,topic\n,b\n", "t.csv", {"text": "body"}, "column 'body' is empty in every row"),
        ('{"body": "a", "label": 1.5}\n', "t.jsonl", {"text": "body"}, "holds fractions"),
        ("body,topic\n", "t.csv", {"text": "body"}, "holds no usable row"),
        ('{"body": "a"}\n{"body": \n', "t.jsonl", {"text": "body"}, "line 2 is not JSON"),
        ('{"body": "a"}\n["b"]\n', "t.jsonl", {"text": "body"}, r"line 2 is \[\"b\"\]; expected an object"),
        ("\n\n", "t.jsonl", {"text": "body"}, "holds no line with a value"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, content: str, name: str, how: Any, message: str
) -> None:
    with pytest.raises((DataError, LabelError), match=message):
        read(written(tmp_path, content, name), **how)


@pytest.mark.parametrize(
    ("encoding", "message"), [("latin-1", "not UTF-8 text: line .* holds the byte 0xfc"), ("utf-16-le", "not UTF-8|NUL|JSON")]
)
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_other_encodings_are_refused_in_one_sentence(tmp_path: Path, name: str, encoding: str, message: str) -> None:
    content = '{"body": "Grüße"}\n' if name == "t.jsonl" else "body\nGrüße\n"
    with pytest.raises(DataError, match=message):
        read(written(tmp_path, content, name, encoding), text="body")


def test_a_text_column_belongs_to_a_table(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"is a folder and not a table\. Leave text out"):
        read(tmp_path, text="body")
    with pytest.raises(SettingError, match="is not a table"):
        read(written(tmp_path, "", "t.npy"), text="body")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_file_without_line_ends_is_not_read_into_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited_text, "MAX_LINE", 100_000)
    path = written(tmp_path, "text,label\n" + "a,b\n" * 20_000 if name == "t.csv" else '{"text": "a", "label": "b"}\n', name)
    with path.open("ab") as file:
        file.truncate(1 << 40)  # zeros that occupy no space on the disk
    with pytest.raises(DataError, match=r"line (2|20002) has more than 100,000 characters"):
        read(path, text="text")
