"""Datasets are loaded and checked; verification reports the state of each file."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from samekind.data.hub.catalogue import DATASETS, data_root, dataset_folder
from samekind.data.hub.cifar_dataset import CIFAR10
from samekind.data.hub.loaders import load_dataset
from samekind.data.hub.mnist_dataset import MNIST
from samekind.data.hub.source import DatasetFile, DatasetSource, SplitFiles, digest, file_digest
from samekind.data.hub.svhn_dataset import SVHN
from samekind.data.hub.verification import FileCheck, list_datasets, require_intact, verify_dataset
from samekind.errors import DataError, SettingError

DATA = Path(os.environ.get("SAMEKIND_DATA", "nowhere"))
RNG = np.random.default_rng(0)


def states(name: str, root: Path) -> list[str]:
    return [found.state for found in verify_dataset(name, root)]


def official(name: str, blob: bytes, content: bytes | None = None) -> DatasetFile:
    return DatasetFile(name, *digest([blob]), "" if content is None else hashlib.sha256(content).hexdigest())


def sentence(name: str, root: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(name, root, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# CIFAR, small: 2 files of 2 images of 2 x 2 for training, 1 of 2 for the test

IMAGES = RNG.integers(0, 256, (6, 2, 2, 3), np.uint8)
LABELS = [0, 1, 1, 0, 0, 1]


def batch(rows: slice, **changes: Any) -> dict[str, Any]:
    return {"data": IMAGES[rows].transpose(0, 3, 1, 2).reshape(-1, 12), "labels": LABELS[rows]} | changes


def content(whole: dict[str, Any]) -> bytes:
    return bytes(whole["data"].tobytes()) + bytes(whole["labels"])


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root folder of a small CIFAR dataset."""
    folder = tmp_path / "cifar"
    folder.mkdir()
    files = []
    for name, rows in {"b1": slice(0, 2), "b2": slice(2, 4), "t": slice(4, 6)}.items():
        blob = pickle.dumps(batch(rows), 2)
        (folder / name).write_bytes(blob)
        files.append(official(name, blob, content(batch(rows))))
    names = pickle.dumps({"label_names": ["cat", "dog"]}, 2)
    (folder / "names").write_bytes(names)
    source = replace(
        CIFAR10,
        name="small",
        folders=("cifar",),
        shape=(2, 2, 3),
        classes=("cat", "dog"),
        train=SplitFiles((files[0], files[1]), 4, (2, 2)),
        test=SplitFiles((files[2],), 2, (1, 1)),
        names=official("names", names, b"cat\ndog"),
    )
    monkeypatch.setitem(DATASETS, "small", source)
    return tmp_path


def test_cifar_planes_become_images_with_channels_last(cifar: Path) -> None:
    small = load_dataset("small", cifar)
    np.testing.assert_array_equal(small.x, IMAGES[:4])
    np.testing.assert_array_equal(small.x_test, IMAGES[4:])
    assert small.x.dtype == np.uint8 and small.y.dtype == np.int64
    assert small.y.tolist() == LABELS[:4] and small.y_test.tolist() == LABELS[4:]
    assert small.classes == ("cat", "dog") and small.x_extra is None
    assert small.x.flags.writeable and small.x.flags.c_contiguous


def test_fine_labels_take_precedence(cifar: Path) -> None:
    whole = batch(slice(4, 6), fine_labels=np.array([1, 0]))
    (cifar / "cifar" / "t").write_bytes(pickle.dumps(whole))
    assert load_dataset("small", cifar).y_test.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, 0]}, "2 images of class 'cat'; expected 1"),
        ({"labels": [0, 2]}, "labels from 0 to 2; expected 0 to 1"),
        ({"labels": [0, -1]}, "holds no list of labels from 0 to 255"),
        ({"labels": [0]}, "holds 2 images and 1 labels"),
        ({"labels": "01"}, "holds no list of labels"),
        ({"data": IMAGES[4:].reshape(-1, 12).astype(np.int16)}, "holds no table 'data' of pixels"),
        (
            {"data": IMAGES[4:].reshape(-1, 6), "labels": [0] * 4},
            r"holds an array \(4, 6\); expected 2 or fewer rows of 12 numbers",
        ),
        ({"data": IMAGES[4:].ravel()}, "holds no table 'data' of pixels"),
        ({"data": IMAGES.reshape(-1, 12), "labels": LABELS}, r"holds an array \(6, 12\); expected 2 or fewer rows of 12"),
        (
            {"data": IMAGES[4:5].reshape(-1, 12), "labels": [0]},
            r"images \(1, 2, 2, 3\) and labels \(1,\); expected \(2, 2, 2, 3\)",
        ),
        ({"data": [1, 2]}, "holds no table 'data' of pixels"),
    ],
)
def test_a_file_with_unexpected_content_is_a_clear_error(changes: dict[str, Any], message: str, cifar: Path) -> None:
    (cifar / "cifar" / "t").write_bytes(pickle.dumps(batch(slice(4, 6), **changes)))
    with pytest.raises(DataError, match=message):
        load_dataset("small", cifar)
    assert states("small", cifar) == ["ok", "ok", "damaged", "ok"]


def test_a_file_that_is_far_too_large_is_not_read(cifar: Path) -> None:
    with (cifar / "cifar" / "t").open("r+b") as file:
        file.truncate(1 << 40)  # a hole, no bytes
    with pytest.raises(DataError, match="is larger than"):
        load_dataset("small", cifar)


def test_the_error_for_a_missing_dataset_names_the_folder_and_the_command(tmp_path: Path) -> None:
    root = tmp_path / "my data"
    expected = f"the dataset cifar10 is not in {root / 'cifar-10-batches-py'}: data_batch_1 and 5 more file(s) are missing. "
    assert sentence("cifar10", root) == f"{expected}Run: samekind data fetch cifar10 --root '{root}'"


def test_one_missing_file_is_named(cifar: Path) -> None:
    (cifar / "cifar" / "b2").unlink()
    assert f"the dataset small is not in {cifar / 'cifar'}: b2 is missing. Run: " in sentence("small", cifar)


def test_the_root_is_the_argument_or_the_variable_or_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEKIND_DATA", str(tmp_path))
    assert data_root("here") == Path("here")
    assert data_root() == tmp_path
    with pytest.raises(DataError, match=r"Run: samekind data fetch mnist$"):
        load_dataset("mnist")
    monkeypatch.delenv("SAMEKIND_DATA")
    assert data_root() == Path("data")
    assert data_root("~/x") == Path.home() / "x"


def test_official_files_are_ok(cifar: Path) -> None:
    assert verify_dataset("small", cifar)[0] == FileCheck("b1", "ok", "the official file")
    assert states("small", cifar) == ["ok"] * 4
    require_intact("small", verify_dataset("small", cifar), cifar)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_a_file_pickled_again_is_recognized_by_its_content(protocol: int, cifar: Path) -> None:
    (cifar / "cifar" / "b1").write_bytes(pickle.dumps(batch(slice(0, 2), more=["a"]), protocol))
    (cifar / "cifar" / "names").write_bytes(pickle.dumps({"label_names": [b"cat", b"dog"]}, protocol))
    assert states("small", cifar) == ["repacked", "ok", "ok", "repacked"]
    require_intact("small", verify_dataset("small", cifar), cifar)


@pytest.mark.parametrize("change", ["pixel", "label", "name"])
def test_one_changed_pixel_label_or_name_is_found(change: str, cifar: Path) -> None:
    whole = batch(slice(0, 2))
    if change == "pixel":
        whole["data"] = whole["data"] ^ (np.arange(24).reshape(2, 12) == 5)
    elif change == "label":
        whole["labels"] = [1, 0]
    else:
        (cifar / "cifar" / "names").write_bytes(pickle.dumps({"label_names": ["dog", "cat"]}))
    (cifar / "cifar" / "b1").write_bytes(pickle.dumps(whole))
    found = next(found for found in verify_dataset("small", cifar) if found.state == "damaged")
    assert found.reason.startswith("other content than the official file (")


def test_missing_and_damaged_files_are_counted_in_the_error(cifar: Path) -> None:
    (cifar / "cifar" / "b1").unlink()
    (cifar / "cifar" / "b2").write_bytes(b"cposix\nsystem\n.")
    (cifar / "cifar" / "names").write_bytes(pickle.dumps({"label_names": 7}))
    findings = verify_dataset("small", cifar)
    assert [found.state for found in findings] == ["missing", "damaged", "ok", "damaged"]
    assert "the file refers to the Python object 'posix.system'" in findings[1].reason
    with pytest.raises(
        DataError, match=r"is not complete: of 4 files 2 damaged and 1 missing\. Run: samekind data fetch small --root"
    ):
        require_intact("small", findings, cifar)


def test_without_a_content_checksum_only_the_official_file_passes(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = DATASETS["small"]
    blind = replace(small, train=replace(small.train, files=tuple(replace(file, content="") for file in small.train.files)))
    monkeypatch.setitem(DATASETS, "small", blind)
    (cifar / "cifar" / "b1").write_bytes(pickle.dumps(batch(slice(0, 2)), 4))
    assert states("small", cifar) == ["damaged", "ok", "ok", "ok"]
    assert "bytes instead of" in verify_dataset("small", cifar)[0].reason


def test_the_list_of_datasets_counts_files_by_name(cifar: Path) -> None:
    (cifar / "cifar" / "b1").unlink()
    lines = {line.name: line for line in list_datasets(cifar)}
    assert list(lines) == list(DATASETS)
    assert lines["small"].in_place == "3 of 4 files" and lines["mnist"].in_place == "no"
    assert lines["svhn"] == ("svhn", "73,257 + 26,032", "32x32x3", "10", "246 MB", "no")


# MNIST, small: 3 + 2 images of 2 x 2

DIGITS = RNG.integers(0, 256, (5, 2, 2), np.uint8)


def idx(array: Any) -> bytes:
    values = np.asarray(array, np.uint8)
    return struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    parts = {"x.gz": DIGITS[:3], "y.gz": [0, 1, 2], "x_test.gz": DIGITS[3:], "y_test.gz": [3, 3]}
    files = []
    for name, values in parts.items():
        blob = gzip.compress(idx(values), mtime=0)
        (tmp_path / "MNIST" / "raw" / name).write_bytes(blob)
        files.append(official(name, blob, idx(values)))
    source = replace(
        MNIST,
        name="small",
        shape=(2, 2, 1),
        train=SplitFiles((files[0], files[1]), 3, (1, 1, 1) + (0,) * 7),
        test=SplitFiles((files[2], files[3]), 2, (0, 0, 0, 2) + (0,) * 6),
    )
    monkeypatch.setitem(DATASETS, "small", source)
    return tmp_path


def test_mnist_images_get_one_channel_and_are_found_in_the_folder_of_torchvision(mnist: Path) -> None:
    small = load_dataset("small", mnist)
    assert dataset_folder(DATASETS["small"], mnist) == mnist / "MNIST" / "raw"
    np.testing.assert_array_equal(small.x[..., 0], DIGITS[:3])
    assert small.x.shape == (3, 2, 2, 1) and small.x.flags.writeable
    assert small.y.tolist() == [0, 1, 2] and small.y.dtype == np.int64


def test_a_file_compressed_again_is_recognized_by_its_content(mnist: Path) -> None:
    path = mnist / "MNIST" / "raw" / "x.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=7))
    assert states("small", mnist) == ["repacked", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (gzip.compress(idx([0, 1, 2]), mtime=0)[:-9], "cannot be unzipped"),
        (b"not zipped", "cannot be unzipped"),
        (b"", "holds only 0 bytes unzipped; expected 11"),
        (gzip.compress(idx([0, 1]), mtime=0), "holds only 10 bytes unzipped; expected 11"),
        (gzip.compress(bytes(50_000_000), 1, mtime=0), "holds more than 11 bytes unzipped; expected 11"),
        (gzip.compress(bytes(11), mtime=0), r"is not an MNIST file \(idx format\) of shape \(3,\)"),
        (gzip.compress(idx([0, 1, 11]), mtime=0), "labels from 0 to 11; expected 0 to 9"),
    ],
)
def test_a_damaged_gz_file_is_a_clear_error(blob: bytes, message: str, mnist: Path) -> None:
    (mnist / "MNIST" / "raw" / "y.gz").write_bytes(blob)
    with pytest.raises(DataError, match=message):
        load_dataset("small", mnist)
    assert states("small", mnist)[1] == "damaged"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 30), byte=st.integers(0, 255))
def test_a_changed_gz_file_is_read_or_refused(mnist: Path, at: int, byte: int) -> None:
    blob = bytearray(gzip.compress(idx([0, 1, 2]), mtime=0))
    blob[at] = byte
    (mnist / "MNIST" / "raw" / "y.gz").write_bytes(blob)
    try:
        assert load_dataset("small", mnist).y.tolist() == [0, 1, 2]
    except DataError:
        assert states("small", mnist)[1] == "damaged"


# SVHN, small: 3 + 2 + 4 images of 2 x 2

NUMBERS = RNG.integers(0, 256, (9, 2, 2, 3), np.uint8)


def mat(path: Path, rows: slice, labels: list[int]) -> None:
    tables = {"X": np.moveaxis(NUMBERS[rows], 0, 3), "y": np.array(labels, np.uint8).reshape(-1, 1)}
    savemat(path, tables, do_compression=True)


@pytest.fixture
def svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "svhn").mkdir()
    mat(tmp_path / "svhn" / "train.mat", slice(0, 3), [10, 1, 9])
    mat(tmp_path / "svhn" / "test.mat", slice(3, 5), [10, 10])
    mat(tmp_path / "svhn" / "extra.mat", slice(5, 9), [1, 2, 3, 10])
    train, test, extra = (
        DatasetFile(f"{name}.mat", *file_digest(tmp_path / "svhn" / f"{name}.mat")) for name in ("train", "test", "extra")
    )
    source = replace(
        SVHN,
        name="small",
        shape=(2, 2, 3),
        train=SplitFiles((train,), 3, (1, 1) + (0,) * 7 + (1,)),
        test=SplitFiles((test,), 2, (2,) + (0,) * 9),
        extra=SplitFiles((extra,), 4),
    )
    monkeypatch.setitem(DATASETS, "small", source)
    return tmp_path


def test_svhn_label_10_is_the_digit_0_and_the_first_axis_counts_images(svhn: Path) -> None:
    small = load_dataset("small", svhn)
    np.testing.assert_array_equal(small.x, NUMBERS[:3])
    assert small.y.tolist() == [0, 1, 9] and small.y_test.tolist() == [0, 0]
    assert small.x.flags.c_contiguous and small.y.dtype == np.int64
    assert small.x_extra is None and small.y_extra is None


def test_extra_images_are_loaded_on_request(svhn: Path) -> None:
    small = load_dataset("small", svhn, extra=True)
    assert small.x_extra is not None and small.y_extra is not None
    np.testing.assert_array_equal(small.x_extra, NUMBERS[5:])
    assert small.y_extra.tolist() == [1, 2, 3, 0]


def test_missing_extra_images_are_an_error_only_on_request(svhn: Path) -> None:
    (svhn / "svhn" / "extra.mat").unlink()
    load_dataset("small", svhn)
    assert states("small", svhn) == ["ok", "ok", "optional"]
    require_intact("small", verify_dataset("small", svhn), svhn)
    assert sentence("small", svhn, extra=True).endswith(f"Run: samekind data fetch small --root {svhn} --extra")


def test_damaged_extra_images_are_an_error_with_the_right_command(svhn: Path) -> None:
    (svhn / "svhn" / "extra.mat").write_bytes(b"?")
    with pytest.raises(DataError, match=r"1 damaged\. Run: .* --extra$"):
        require_intact("small", verify_dataset("small", svhn), svhn)


def test_extra_images_that_do_not_exist_are_refused(cifar: Path) -> None:
    with pytest.raises(SettingError, match="small has no extra images; the only dataset with extra images is svhn"):
        load_dataset("small", cifar, extra=True)


@pytest.mark.parametrize("blob", [b"", b"MATLAB 5.0 MAT-file", bytes(1000)], ids=len)
def test_a_matlab_file_that_is_not_official_is_not_opened(blob: bytes, svhn: Path) -> None:
    (svhn / "svhn" / "train.mat").write_bytes(blob)
    assert f"{svhn / 'svhn' / 'train.mat'} is not the official file: {len(blob)} bytes instead of " in sentence("small", svhn)


# what is needed, and what is real


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_a_clear_error(cifar: Path) -> None:
    (cifar / "cifar" / "b1").chmod(0)
    assert "cannot be read (Permission denied)" in sentence("small", cifar)
    assert states("small", cifar)[0] == "damaged"


def test_loading_a_dataset_does_not_import_torch(cifar: Path) -> None:
    code = (
        "import sys; from samekind.data.hub.loaders import load_dataset\n"
        "from samekind.data.hub.download import download_dataset\n"
        "print(sorted({'torch', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['numpy']\n"


def real(source: DatasetSource) -> pytest.MarkDecorator:
    there = all((dataset_folder(source, DATA) / file.name).is_file() for file in source.needed)
    return pytest.mark.skipif(not there, reason=f"needs {source.name} in $SAMEKIND_DATA")


@real(CIFAR10)
def test_the_real_cifar10_is_complete() -> None:
    assert {found.state for found in verify_dataset("cifar10", DATA)} <= {"ok", "repacked"}
    cifar10 = load_dataset("cifar10", DATA)
    assert cifar10.x.shape == (50_000, 32, 32, 3) and cifar10.x_test.shape == (10_000, 32, 32, 3)
    assert np.bincount(cifar10.y).tolist() == [5000] * 10 and np.bincount(cifar10.y_test).tolist() == [1000] * 10
    means = cifar10.x.reshape(-1, 3).mean(0) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=5e-5)
    assert [cifar10.classes[y] for y in cifar10.y[:5]] == ["frog", "truck", "truck", "deer", "automobile"]


@real(CIFAR10)
def test_a_real_batch_pickled_again_is_repacked_and_a_changed_one_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    whole = pickle.loads((dataset_folder(CIFAR10, DATA) / "test_batch").read_bytes(), encoding="latin1")
    (folder / "test_batch").write_bytes(pickle.dumps(whole, 4))
    assert verify_dataset("cifar10", tmp_path)[5].state == "repacked"
    whole["data"][9999, 3071] ^= 1
    (folder / "test_batch").write_bytes(pickle.dumps(whole, 4))
    assert verify_dataset("cifar10", tmp_path)[5].state == "damaged"


@real(MNIST)
def test_the_real_mnist_is_complete() -> None:
    assert {found.state for found in verify_dataset("mnist", DATA)} <= {"ok", "repacked"}
    mnist = load_dataset("mnist", DATA)
    assert mnist.x.shape == (60_000, 28, 28, 1) and mnist.x_test.shape == (10_000, 28, 28, 1)
    assert mnist.y[:5].tolist() == [5, 0, 4, 1, 9]
