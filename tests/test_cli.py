"""The command starts fast, and bad input gives one line on stderr and exit code 2."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import CliRunner

import samekind
from samekind.cli import app
from samekind.data.hub.catalogue import DATASETS
from samekind.data.hub.mnist_dataset import MNIST
from samekind.data.hub.source import DatasetFile, SplitFiles, digest
from samekind.methods import METHODS

HEAVY = "{'torch', 'sklearn', 'matplotlib', 'scipy', 'numpy'}"


def loaded_by(code: str) -> str:
    """Return the heavy packages that `code` imports in a new interpreter."""
    ending = f"import sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import samekind",
        "import samekind.cli",
        "from samekind.cli import app; app(['--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['demo', '--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['data', 'fetch', '--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['bench', '--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['--version'], standalone_mode=False)",
    ],
)
def test_heavy_packages_are_imported_only_when_needed(code: str) -> None:
    assert loaded_by(code) == "[]"


def test_the_server_starts_without_torch_and_scikit_learn() -> None:
    assert not {"torch", "sklearn", "matplotlib", "scipy"} & set(ast.literal_eval(loaded_by("import samekind.server.app")))


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("demo", "methods", "data", "--version"))


def test_python_m_samekind_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "samekind", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"samekind {samekind.__version__}\n"


def test_methods_lists_each_method_with_its_summary_and_its_requirements() -> None:
    result = CliRunner().invoke(app, ["methods"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines() if line.startswith("|")]
    assert rows[0] == ["name", "summary", "paper", "needs", "cost"]
    assert [row[0] for row in rows[2:]] == list(METHODS)
    assert all(row[1] == METHODS[row[0]].summary for row in rows[2:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--radii", "2", "2"], "radii are 2 2; expected two different numbers above 0"),
        (["--radii", "-1", "2"], "radii are -1 2; expected two different numbers above 0"),
        (["--radii", "nan", "2"], "radii are nan 2; expected two different numbers above 0"),
        (["--seed", "-3"], "seed is -3; expected a whole number from 0"),
        (["--out", "taken"], "taken is a file or inside a file; expected a folder or an unused name"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--quick", *options])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"samekind: {message}")
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("options", [["--radii", "one", "two"], ["--seed", "x"], ["--nonsense"]])
def test_an_option_that_cannot_be_read_ends_with_code_2_and_no_traceback(options: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "samekind", "demo", *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a dataset of two files on this machine; yield the folder to download it to."""
    (tmp_path / "web").mkdir()
    for name in ("one", "two"):
        (tmp_path / "web" / name).write_bytes(name.encode() * 1000)
    one, two = (SplitFiles((DatasetFile(name, *digest([name.encode() * 1000])),), 1) for name in ("one", "two"))
    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "web"))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setitem(
            DATASETS, "small", replace(MNIST, name="small", folders=("small",), hosts=(host,), train=one, test=two)
        )
        yield tmp_path / "root"
        server.shutdown()


@pytest.mark.parametrize("command", [["data"], ["data", "list"]])
def test_data_lists_the_datasets_and_which_are_downloaded(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEKIND_DATA", str(tmp_path))
    result = CliRunner().invoke(app, command)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert rows[0] == ["name", "images", "shape", "classes", "download", "in place"]
    assert [row[0] for row in rows[2:]] == ["cifar10", "cifar100", "svhn", "mnist", "fashion_mnist"]
    assert {row[5] for row in rows[2:]} == {"no"}
    assert result.stderr == f"datasets are searched in {tmp_path}\n"


def test_data_is_fetched_and_verified_by_name(small: Path) -> None:
    fetched = CliRunner().invoke(app, ["data", "fetch", "small", "--root", str(small)])
    assert (fetched.exit_code, fetched.stdout) == (0, f"{small / 'small'}\n")
    assert "small is complete. Terms: " in fetched.stderr and "Cite: LeCun" in fetched.stderr
    verified = CliRunner().invoke(app, ["data", "verify", "small", "--root", str(small)])
    assert verified.exit_code == 0
    assert verified.stdout.count("the official file") == 2
    assert verified.stderr == ""


def test_damaged_data_is_listed_by_file_and_gives_one_line_and_exit_code_2(small: Path) -> None:
    (small / "small").mkdir(parents=True)
    (small / "small" / "one").write_text("spoilt")
    result = CliRunner().invoke(app, ["data", "verify", "small", "--root", str(small)])
    assert result.exit_code == 2
    assert "| one   | damaged | 6 bytes instead of 3000 |" in result.stdout
    assert "| two   | missing | not in place" in result.stdout
    assert result.stderr == (
        f"samekind: small in {small / 'small'} is not complete: of 2 files 1 damaged and 1 missing. "
        f"Run: samekind data fetch small --root {small}\n"
    )


def test_a_failed_download_is_one_line_and_leaves_no_partial_file(small: Path) -> None:
    (small.parent / "web" / "two").unlink()
    result = CliRunner().invoke(app, ["data", "fetch", "small", "--root", str(small)])
    assert result.exit_code == 2
    assert "samekind: two could not be downloaded: http://127.0.0.1" in result.stderr.splitlines()[-1]
    assert "responded 404 File not found. Try again later" in result.stderr.splitlines()[-1]
    assert [path.name for path in (small / "small").iterdir()] == ["one"]


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_an_unknown_dataset_is_refused_before_anything_is_downloaded(verb: str, small: Path) -> None:
    result = CliRunner().invoke(app, ["data", verb, "small", "cifar-10", "--root", str(small)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "samekind: there is no dataset 'cifar-10'; did you mean 'cifar10'?\n"
    assert not small.exists()


def test_an_unknown_encoder_gives_one_line_and_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "images"), "--encoder", "resnet", "--out", str(tmp_path / "run")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("samekind: there is no encoder 'resnet' (")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--epochs", "inf"], "epochs is inf; expected a number above 0"),
        (["--epochs", "nan"], "epochs is nan; expected a number above 0"),
        (["--epochs", "1e300"], "epochs is 1e+300; expected a number above 0"),
        (["--device", "meta"], "device 'meta' is not on this machine"),
        (["--device", "no"], "device 'no' is not on this machine"),
        (["--device", "cuda:99"], "device 'cuda:99' is not on this machine"),
        (["--method", "mean_techer"], "did you mean 'mean_teacher'"),
        (["--out", ""], "--out is '.'; expected the name of a file or folder"),
        (["--out", "taken/run"], "taken, which is no folder. Choose another path."),
        (["--out", "a" * 251], "--out is too long: 251 bytes in a name"),
    ],
)
def test_fit_refuses_a_wrong_value_before_it_reads_data_or_makes_a_folder(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    result = CliRunner().invoke(app, ["fit", "there_is_no_data", "--out", "run", *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_port_out_of_range_is_refused() -> None:
    assert "less than or equal to 65535" in CliRunner().invoke(app, ["serve", "run", "--port", "70000"]).stderr
