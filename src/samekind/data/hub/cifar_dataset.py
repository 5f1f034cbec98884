"""CIFAR-10 and CIFAR-100, which are distributed as Python pickles. They are read without running any code in them.

The checksums are those of the official files. Independent public sources agree on them, except that the sizes of `train` and
`test` of CIFAR-100 were found in one source only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from samekind.data.hub.pickles import read_pickle
from samekind.data.hub.source import CHUNK, DatasetFile, DatasetSource, Integers, Pixels, SplitFiles, unreadable
from samekind.errors import DataError


def load_cifar_split(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images (n, H, W, C) and labels (n,) of a split."""
    height, width, channels = source.shape
    x, y = np.empty((split.n_images, *source.shape), np.uint8), np.empty(split.n_images, np.int64)
    at = 0
    for file in split.files:
        pixels, labels = read_cifar_batch(folder / file.name, file)
        if pixels.shape[1] != x[0].size or at + len(pixels) > split.n_images:
            raise DataError(
                f"{folder / file.name} holds an array {pixels.shape}; expected {split.n_images - at} or fewer rows "
                f"of {x[0].size} numbers. Get a fresh copy of it."
            )
        # each row of the file has first all red, then all green, then all blue pixels
        x[at : at + len(pixels)] = pixels.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        y[at : at + len(pixels)] = labels
        at += len(pixels)
    return x[:at], y[:at]


def read_cifar_batch(path: Path, file: DatasetFile) -> tuple[Pixels, Integers]:
    """Return the pixels (n, C * H * W) and the labels (n,) in one file. For CIFAR-100 these are the fine labels."""
    batch = read_pickle(_read_bounded(path, file), str(path))
    pixels, labels = batch.get("data"), batch.get("fine_labels", batch.get("labels"))
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim == 2):
        raise DataError(f"{path} holds no table 'data' of pixels from 0 to 255. Get a fresh copy of it.")
    if isinstance(labels, np.ndarray):
        labels = labels.ravel().tolist()
    if not (isinstance(labels, list) and all(isinstance(y, int) and 0 <= y < 256 for y in labels)):
        raise DataError(f"{path} holds no list of labels from 0 to 255. Get a fresh copy of it.")
    if len(labels) != len(pixels):
        raise DataError(f"{path} holds {len(pixels)} images and {len(labels)} labels. Get a fresh copy of it.")
    return pixels, np.array(labels, np.int64)


def read_cifar_class_names(path: Path, file: DatasetFile) -> list[str]:
    """Return the class names of a CIFAR metadata file."""
    metadata = read_pickle(_read_bounded(path, file), str(path))
    names = metadata.get("fine_label_names", metadata.get("label_names"))
    if not (isinstance(names, list) and all(isinstance(name, (str, bytes)) for name in names)):
        raise DataError(f"{path} holds no list of names. Get a fresh copy of it.")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]


def _read_bounded(path: Path, file: DatasetFile) -> bytes:
    """Return the bytes of a file; raise DataError if the file is far larger than the official one."""
    limit = 4 * file.size + CHUNK
    try:
        with path.open("rb") as stream:
            blob = stream.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(blob) > limit:
        raise DataError(f"{path} is larger than {limit} bytes; expected about {file.size}. Get a fresh copy of it.")
    return blob


def hash_cifar_content(source: DatasetSource, file: DatasetFile, path: Path) -> str:
    """Return the SHA-256 of the content of a CIFAR file: of its pixels and labels, or of its class names."""
    if file == source.names:
        return hashlib.sha256("\n".join(read_cifar_class_names(path, file)).encode()).hexdigest()
    pixels, labels = read_cifar_batch(path, file)
    return hashlib.sha256(pixels.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()


# The last argument of each DatasetFile is the SHA-256 of the file's content: of all pixels in the order of the file, followed
# by all labels, one byte each.
CIFAR10 = DatasetSource(
    name="cifar10",
    folders=("cifar-10-batches-py",),
    hosts=("https://www.cs.toronto.edu/~kriz/",),
    shape=(32, 32, 3),
    classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    train=SplitFiles(
        (
            DatasetFile(
                "data_batch_1",
                31035704,
                "c99cafc152244af753f735de768cd75f",
                "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
                "ba52cb2d72c412975d7556bb26bd094956f1c002d1937053f6f1252f2ac17114",
            ),
            DatasetFile(
                "data_batch_2",
                31035320,
                "d4bba439e000b95fd0a9bffe97cbabec",
                "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
                "350ff9000489d02f2568c0dcf4912ffdbae9e50932147905fb1b8159ad54f0ac",
            ),
            DatasetFile(
                "data_batch_3",
                31035999,
                "54ebc095f3ab1f0389bbae665268c751",
                "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
                "a2b8653fc457df407af6c38b7e0d1a12530f3b5f81fce9f81516efd065daf722",
            ),
            DatasetFile(
                "data_batch_4",
                31035696,
                "634d18415352ddfa80567beed471001a",
                "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
                "133e6292c377755074c305db8a684d48d5397372cb0aba34f52b4335eab35d97",
            ),
            DatasetFile(
                "data_batch_5",
                31035623,
                "482c414d41f54cd18b22e5b47cb7c3cb",
                "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
                "eb08cdc11fd1267ef871cf4790f193684b3f556d13317be68f4eb374a078ea87",
            ),
        ),
        n_images=50_000,
        class_counts=(5000,) * 10,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test_batch",
                31035526,
                "40351d587109b95175f43aff81a1287e",
                "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
                "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
            ),
        ),
        n_images=10_000,
        class_counts=(1000,) * 10,
    ),
    names=DatasetFile(
        "batches.meta",
        158,
        "5ff9c542aee3614f3951f8cda6e48888",
        "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb",
        "bb3914949cecedee6d1257f7f5fdb8f43fa3b2c8095fd1763161caf1b873fe59",
    ),
    archive=DatasetFile(
        "cifar-10-python.tar.gz",
        170498071,
        "c58f30108f718f92721af3b95e74349a",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    load_split=load_cifar_split,
    content_hash=hash_cifar_content,
    terms="no licence stated; the authors ask for the citation",
    cite="Krizhevsky: Learning multiple layers of features from tiny images, technical report, University of Toronto, 2009",
)

# For CIFAR-100, no source confirms a checksum of the content. So only files with exactly the official bytes pass the
# verification.
CIFAR100 = DatasetSource(
    name="cifar100",
    folders=("cifar-100-python",),
    hosts=CIFAR10.hosts,
    shape=(32, 32, 3),
    classes=tuple(
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
        caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
        forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
        mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
        possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
        sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
        wolf woman worm""".split()
    ),
    train=SplitFiles(
        (
            DatasetFile(
                "train",
                155249918,
                "16019d7e3df5f24257cddd939b257f8d",
                "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
            ),
        ),
        n_images=50_000,
        class_counts=(500,) * 100,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test",
                31049707,
                "f0ef6b0ae62326f3e7ffdfab6717acfc",
                "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
            ),
        ),
        n_images=10_000,
        class_counts=(100,) * 100,
    ),
    names=DatasetFile(
        "meta",
        1473,
        "7973b15100ade9c7d40fb424638fde48",
        "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9",
        "fbe8ad23bbaf24969898a386833b49c3aaf6ad1119d43f7b41cdea1b3416d578",
    ),
    archive=DatasetFile(
        "cifar-100-python.tar.gz",
        169001437,
        "eb9058c3a382ffc7106e4002c42a8d85",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    load_split=load_cifar_split,
    content_hash=hash_cifar_content,
    terms=CIFAR10.terms,
    cite=CIFAR10.cite,
)
