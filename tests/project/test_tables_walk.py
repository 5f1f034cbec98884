"""Each input of tables, from fit over predict, query, save and load to the page; and damaged input, on the command line."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from PIL import Image
from typer.testing import CliRunner

from samekind import SemiSupervisedClassifier
from samekind.cli import app
from samekind.server.routes.items import ItemsRequest, show_item, show_items
from samekind.server.routes.run import show_columns
from samekind.server.session import Session

N, LABELLED = 40, 12
GROUP = np.arange(N) % 2
CLASSES = ["red" if g else "blue" for g in GROUP]


def png_bytes(i: int) -> bytes:
    """Return a PNG of one colour with noise: red or blue."""
    noise = np.random.default_rng(i).integers(0, 90, (32, 32, 3))
    noise[..., 0 if GROUP[i] else 2] += 160
    file = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def made(rows: range) -> pd.DataFrame:
    """Return rows of numbers with gaps, categories, dates and texts."""
    rng, g = np.random.default_rng(0), GROUP[rows.start : rows.stop]
    return pd.DataFrame(
        {
            "age": np.where(rng.random(len(rows)) < 0.1, np.nan, rng.normal(30 + 20 * g, 4)),
            "city": [None if rng.random() < 0.1 else "Bern" if one else "Basel" for one in g],
            "seen": (pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 500, len(rows)), unit="D")),
            "note": [f"a {'warm' if one else 'cold'} house in street number {i}" for i, one in zip(rows, g, strict=True)],
        }
    )


def with_labels(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(label=[label if i < LABELLED else None for i, label in enumerate(CLASSES)])


def csv_table(folder: Path) -> tuple[Path, Path]:
    with_labels(made(range(N))).to_csv(folder / "all.csv", index=False)
    made(range(10)).iloc[:, ::-1].to_csv(folder / "new.csv", index=False)
    return folder / "all.csv", folder / "new.csv"


def parquet_table(folder: Path) -> tuple[Path, Path]:
    """Write tables with text, and images as Hugging Face datasets stores them: records of bytes and path."""
    for name, frame in (("all", with_labels(made(range(N)))), ("new", made(range(10)))):
        images = [{"bytes": png_bytes(i), "path": f"{i}.png"} for i in range(len(frame))]
        frame.assign(image=images).to_parquet(folder / f"{name}.parquet")
    return folder / "all.parquet", folder / "new.parquet"


def image_paths(folder: Path) -> tuple[Path, Path]:
    """Write a table whose column names image files beside it."""
    (folder / "images").mkdir()
    for i in range(N):
        (folder / "images" / f"{i}.png").write_bytes(png_bytes(i))
    files = [f"images/{i}.png" for i in range(N)]
    with_labels(made(range(N))[["age"]]).assign(file_of_image=files).to_csv(folder / "all.csv", index=False)
    made(range(10))[["age"]].assign(file_of_image=files[:10]).to_csv(folder / "new.csv", index=False)
    return folder / "all.csv", folder / "new.csv"


def hugging_face(folder: Path) -> tuple[Path, Path]:
    """Write folders as `datasets` does: Arrow streams, state.json, and the names of the classes in dataset_info.json."""
    for name, frame in (("all", made(range(N))), ("new", made(range(10)))):
        place = folder / name / "train"
        place.mkdir(parents=True)
        codes = [int(g) if i < LABELLED else -1 for i, g in enumerate(GROUP)][: len(frame)]
        table = arrow.Table.from_pandas(frame.assign(label=codes), preserve_index=False)
        parts = [table.slice(0, len(frame) // 2), table.slice(len(frame) // 2)]
        for i, part in enumerate(parts):
            with arrow.OSFile(str(place / f"data-{i}.arrow"), "wb") as sink, arrow.ipc.new_stream(sink, part.schema) as out:
                out.write_table(part)
        files = [{"filename": f"data-{i}.arrow"} for i in range(len(parts))]
        (place / "state.json").write_text(json.dumps({"_data_files": files}))
        (place / "dataset_info.json").write_text(
            json.dumps({"features": {"label": {"names": ["blue", "red"], "_type": "ClassLabel"}, "age": {"_type": "Value"}}})
        )
        (folder / name / "dataset_dict.json").write_text('{"splits": ["train"]}')
    return folder / "all", folder / "new" / "train"


def shards(folder: Path) -> tuple[Path, Path]:
    """Write WebDataset shards: two .tar files in a folder, and one .tar file."""
    (folder / "all").mkdir()
    for path, rows in {"all/0.tar": range(20), "all/1.tar": range(20, N), "new.tar": range(10)}.items():
        with tarfile.open(folder / path, "w") as file:
            for i in rows:
                add(file, f"{i:03d}.png", png_bytes(i))
                add(file, f"{i:03d}.json", json.dumps({"age": 30.0 + 20 * int(GROUP[i]), "city": None}).encode())
                if i < LABELLED:
                    add(file, f"{i:03d}.cls", CLASSES[i].encode())
    return folder / "all", folder / "new.tar"


def add(file: tarfile.TarFile, name: str, blob: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(blob)
    file.addfile(member, io.BytesIO(blob))


def run(*arguments: object) -> str:
    """Run a command that must succeed; return what it printed on stderr."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stderr


def column(path: Path, name: str) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    "write", [csv_table, parquet_table, image_paths, hugging_face, shards], ids=lambda write: write.__name__
)
def test_tables_go_from_fit_to_the_page(tmp_path: Path, write: Callable[[Path], tuple[Path, Path]]) -> None:
    data, new = write(tmp_path)
    folder = tmp_path / "run"
    report = run("fit", data, "--out", folder)
    assert np.mean(np.array(column(folder / "labels.csv", "label")) == CLASSES) > 0.9
    assert "column age: number from" in report and "age" in column(folder / "columns.csv", "column")
    run("predict", folder, new, "--out", tmp_path / "out.csv")
    assert np.mean(np.array(column(tmp_path / "out.csv", "label")) == CLASSES[:10]) > 0.8
    run("query", folder, new, "--items", "3", "-k", "4", "--out", tmp_path / "query")
    assert len(column(tmp_path / "query.csv", "similarity")) == 4 * 11
    assert SemiSupervisedClassifier.load(folder / "model").classes_.tolist() == ["blue", "red"]
    with closing(Session(folder)) as session:
        (card,) = show_items(session, ItemsRequest(ids=[3]))["items"]
        assert card["pred"] is not None
        fields = {field["name"]: field["value"] for field in show_item(session, 3)["all_fields"]}
        assert "age" in fields
        assert "age" in [one["name"] for one in show_columns(session)["columns"] if one["used"]]
        assert session.array_images.source(3).load(64).size[0] > 0


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_frames_go_from_fit_to_load(tmp_path: Path, library: str) -> None:
    def convert(frame: pd.DataFrame) -> Any:
        if library == "pandas":
            return frame
        table = arrow.Table.from_pandas(frame, preserve_index=False)
        return table if library == "arrow" else pytest.importorskip("polars").from_arrow(table)

    model = SemiSupervisedClassifier(random_state=0).fit(convert(made(range(N))), with_labels(made(range(N)))["label"])
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    new = convert(made(range(10)))
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert np.mean(loaded.predict(new) == CLASSES[:10]) > 0.8
    _, nearest = loaded.kneighbors(new, 3)
    assert np.mean(np.array(CLASSES)[nearest] == np.array(CLASSES[:10])[:, None]) > 0.7


def test_an_unlabelled_table_is_served(tmp_path: Path) -> None:
    from samekind.server.unlabelled_project import resolve_run

    made(range(N)).to_csv(tmp_path / "all.csv", index=False)
    with closing(Session(resolve_run(tmp_path / "all.csv", tmp_path / "run"))) as session:
        assert not session.predictions.trained and len(session.predictions.z) == N


# ---------------------------------------------------------------- damaged input


def tar_of(name: str, blob: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        add(archive, name, blob)
    return file.getvalue()


DAMAGED = {
    "latin-1": ("a.csv", "a,label\nGrüße,x\n".encode("latin-1"), "is not UTF-8 text"),
    "mixed encodings": ("a.csv", "a,label\nGrüße,x\n".encode() + "Grüße,y\n".encode("latin-1"), "line 3 holds the byte 0xfc"),
    "two of one name": ("a.csv", b"a,a,label\n1,2,x\n", "two columns called 'a'"),
    "empty labels": ("a.csv", b"a,label\n1,\n2,\n", "the label column 'label' is empty in all 2 rows"),
    "another label": ("a.csv", b"a,diagnosis\n" + b"1,x\n2,y\n" * 4, "Is it 'diagnosis'? Pass --label-column diagnosis"),
    "no label": ("a.csv", b"a,b\n1.5,2.5\n3.5,4.5\n", "no column called label, class, target, y (columns: a, b)"),
    "parquet": ("a.parquet", b"PAR1PAR1", "cannot be read as Parquet"),
    "arrow": ("a.arrow", b"ARROW1\0\0damaged", "cannot be read as Arrow"),
    "tar": ("a.tar", b"damaged" * 200, "cannot be read as a .tar file"),
    "cut tar": ("a.tar", tar_of("1.png", b"\x89PNG" * 999)[:2000], ".tar"),
    "tar without samples": ("a.tar", tar_of("readme", b"x"), "holds no samples"),
    "tar with bad JSON": ("a.tar", tar_of("1.json", b"{"), "1.json cannot be read"),
    "state": ("d/state.json", b"{", "state.json is not JSON"),
    "no files": ("d/state.json", b"{}", "lists no Arrow files"),
    "outside": ("d/state.json", b'{"_data_files": [{"filename": "../x.arrow"}]}', "lists no Arrow files"),
    "splits": ("d/dataset_dict.json", b'{"splits": ["test"]}', "has no split named train, only test"),
}


@pytest.mark.parametrize(("name", "blob", "message"), DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_input_is_one_sentence_and_exit_code_2(tmp_path: Path, name: str, blob: bytes, message: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(blob)
    result = CliRunner().invoke(app, ["fit", str(tmp_path / Path(name).parts[0]), "--out", str(tmp_path / "run")])
    assert result.exit_code == 2 and "Traceback" not in result.output
    last = result.stderr.strip().splitlines()[-1]
    assert message in last and last.startswith("samekind: ") and not (tmp_path / "run").exists()


def test_a_table_with_very_many_columns_is_fitted_without_a_hang(tmp_path: Path) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    lines = [",".join([*(f"c{i}" for i in range(n)), "label"])]
    lines += [",".join([*map(str, rng.integers(0, 9, n)), "xy"[i % 2] if i < 6 else ""]) for i in range(12)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    report = run("fit", tmp_path / "wide.csv", "--out", tmp_path / "run")
    assert "more columns are listed in" in report and len(column(tmp_path / "run" / "labels.csv", "label")) == 12
