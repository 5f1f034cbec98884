"""MNIST and Fashion-MNIST, which are distributed as compressed idx files."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np

from samekind.data.hub.source import DatasetFile, DatasetSource, Integers, Pixels, SplitFiles, unreadable
from samekind.errors import DataError


def load_idx_split(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images (n, H, W, 1) and labels (n,) of a split."""
    images, labels = split.files
    height, width, _ = source.shape
    x = _read_idx(folder / images.name, (split.n_images, height, width))
    y = _read_idx(folder / labels.name, (split.n_images,))
    return x[..., None], y.astype(np.int64)


def _read_idx(path: Path, shape: tuple[int, ...]) -> Pixels:
    """Return the array in an idx file: a header with the shape, followed by one byte for each value."""
    blob = _gunzip(path, _idx_size(shape))
    header = struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape)
    if not blob.startswith(header) or len(blob) != _idx_size(shape):
        raise DataError(f"{path} is not an MNIST file (idx format) of shape {shape}. Get a fresh copy of it.")
    return np.frombuffer(blob, np.uint8, offset=len(header)).reshape(shape).copy()


def _idx_size(shape: tuple[int, ...]) -> int:
    return 4 * (1 + len(shape)) + int(np.prod(shape))


def _gunzip(path: Path, size: int) -> bytes:
    """Return the content of a .gz file, which must have exactly `size` bytes. No more than this is unpacked."""
    try:
        with gzip.open(path) as file:
            blob = file.read(size + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unzipped ({error}). Get a fresh copy of it.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if len(blob) != size:
        found = f"more than {size}" if len(blob) > size else f"only {len(blob)}"
        raise DataError(f"{path} holds {found} bytes unzipped; expected {size}. Get a fresh copy of it.")
    return blob


def hash_idx_content(source: DatasetSource, file: DatasetFile, path: Path) -> str:
    """Return the SHA-256 of the unpacked file."""
    split = source.train if file in source.train.files else source.test
    shape = (split.n_images, *source.shape[:2]) if file == split.files[0] else (split.n_images,)
    return hashlib.sha256(_gunzip(path, _idx_size(shape))).hexdigest()


# The last argument of each DatasetFile is the SHA-256 of the unpacked file. It is needed because many copies of the dataset
# were compressed again.
MNIST = DatasetSource(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    hosts=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",  # hosted with the consent of the authors
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",  # website of the authors; often not available
    ),
    shape=(28, 28, 1),
    classes=tuple("0123456789"),
    train=SplitFiles(
        (
            DatasetFile(
                "train-images-idx3-ubyte.gz",
                9912422,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            DatasetFile(
                "train-labels-idx1-ubyte.gz",
                28881,
                "d53e105ee54ea40749a09fcbcd1e9432",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
        ),
        n_images=60_000,
        class_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "t10k-images-idx3-ubyte.gz",
                1648877,
                "9fb629c4189551a2d022fa330f9573f3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            DatasetFile(
                "t10k-labels-idx1-ubyte.gz",
                4542,
                "ec29112dd5afa0611ce80d1b7f02629c",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        n_images=10_000,
        class_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    load_split=load_idx_split,
    content_hash=hash_idx_content,
    terms="no licence on the authors' page; often given as CC BY-SA 3.0",
    cite="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, Proc. IEEE 86, 1998",
)

# For Fashion-MNIST, no source confirms a checksum of the content. So only files with exactly the official bytes pass the
# verification.
FASHION_MNIST = DatasetSource(
    name="fashion_mnist",
    folders=("fashion_mnist", "FashionMNIST/raw"),
    hosts=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    shape=(28, 28, 1),
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    train=SplitFiles(
        (
            DatasetFile(
                "train-images-idx3-ubyte.gz",
                26421880,
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            DatasetFile(
                "train-labels-idx1-ubyte.gz",
                29515,
                "25c81989df183df01b3e8a0aad5dffbe",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
        ),
        n_images=60_000,
        class_counts=(6000,) * 10,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "t10k-images-idx3-ubyte.gz",
                4422102,
                "bef4ecab320f06d8554ea6380940ec79",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            DatasetFile(
                "t10k-labels-idx1-ubyte.gz",
                5148,
                "bb300cfdad3c16e7a12a480ee83cd310",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        n_images=10_000,
        class_counts=(1000,) * 10,
    ),
    load_split=load_idx_split,
    content_hash=hash_idx_content,
    terms="MIT licence",
    cite="Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017",
)
