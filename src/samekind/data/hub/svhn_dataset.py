"""SVHN (street view house numbers), which is distributed as MATLAB files and read with scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from samekind.data.hub.source import DatasetFile, DatasetSource, Integers, Pixels, SplitFiles, describe_difference, file_digest
from samekind.errors import DataError


def load_svhn_split(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images (n, H, W, C) and the labels (n,) of a split.

    The MATLAB file has X (H, W, C, n) and y (n, 1), where the label 10 stands for the digit 0.
    """
    from scipy.io import loadmat

    (file,) = split.files
    path = folder / file.name
    found = file_digest(path)
    if found != file.digest:  # scipy may crash on a damaged file, so it only opens the official one
        raise DataError(f"{path} is not the official file: {describe_difference(found, file.digest)}. Get a fresh copy of it.")
    arrays = loadmat(path, variable_names=["X", "y"])
    return np.ascontiguousarray(np.moveaxis(arrays["X"], 3, 0)), arrays["y"].ravel().astype(np.int64) % 10


# For SVHN, no source confirms a checksum of the content, and the class counts of the extra images are not known.
SVHN = DatasetSource(
    name="svhn",
    folders=("svhn", "."),
    hosts=("http://ufldl.stanford.edu/housenumbers/",),
    shape=(32, 32, 3),
    classes=tuple("0123456789"),
    train=SplitFiles(
        (
            DatasetFile(
                "train_32x32.mat",
                182040794,
                "e26dedcc434d2e4c54c9b2d4a06d8373",
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
        ),
        n_images=73_257,
        class_counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test_32x32.mat",
                64275384,
                "eb5a983be6a315427106f1b164d9cef3",
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        n_images=26_032,
        class_counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    ),
    extra=SplitFiles(
        (
            DatasetFile(
                "extra_32x32.mat",
                1329278602,
                "a93ce644f1a588dc4d68dda5feec44a7",
                "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
            ),
        ),
        n_images=531_131,
    ),
    load_split=load_svhn_split,
    terms="for non-commercial use only",
    cite="Netzer, Wang, Coates, Bissacco, Wu, Ng: Reading digits in natural images with unsupervised feature learning, 2011",
)
