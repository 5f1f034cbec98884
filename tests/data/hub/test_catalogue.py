"""The catalogue is consistent, and an unknown name gets the most similar one."""

from __future__ import annotations

import hashlib
import re

import pytest

from samekind.data.hub.catalogue import DATASETS, find_dataset
from samekind.data.hub.source import DatasetFile, DatasetSource, SplitFiles
from samekind.errors import SettingError

SOURCES = list(DATASETS.values())
by_name = pytest.mark.parametrize("source", SOURCES, ids=list(DATASETS))


def splits_of(source: DatasetSource) -> list[SplitFiles]:
    return [source.train, source.test, *([source.extra] if source.extra else [])]


def files_of(source: DatasetSource) -> list[DatasetFile]:
    return [*source.needed, *source.optional, *([source.archive] if source.archive else [])]


def test_the_catalogue_has_five_datasets() -> None:
    assert list(DATASETS) == ["cifar10", "cifar100", "svhn", "mnist", "fashion_mnist"]
    assert all(find_dataset(name).name == name for name in DATASETS)


@pytest.mark.parametrize(("name", "meant"), [("cifar", "cifar10"), ("CIFAR-10", "cifar10"), ("fashion-mnist", "fashion_mnist")])
def test_an_unknown_name_gets_the_nearest_known_one(name: str, meant: str) -> None:
    with pytest.raises(SettingError, match=f"there is no dataset '{name}'; did you mean '{meant}'?"):
        find_dataset(name)


def test_a_name_without_a_similar_one_lists_all_datasets() -> None:
    with pytest.raises(SettingError, match="known: cifar10, cifar100, fashion_mnist, mnist, svhn"):
        find_dataset("imagenet")


@by_name
def test_checksums_have_their_form_and_no_two_files_share_one(source: DatasetSource) -> None:
    files = files_of(source)
    assert all(re.fullmatch("[0-9a-f]{32}", file.md5) and re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files)
    assert all(re.fullmatch("([0-9a-f]{64})?", file.content) and file.size > 0 for file in files)
    everywhere = [file for other in SOURCES for file in files_of(other)]
    for field in ("md5", "sha256", "size"):
        assert len({getattr(file, field) for file in everywhere}) == len(everywhere)


@by_name
def test_the_class_counts_of_a_split_add_up_to_its_images(source: DatasetSource) -> None:
    for split in splits_of(source):
        assert not split.class_counts or (
            sum(split.class_counts) == split.n_images and len(split.class_counts) == len(source.classes)
        )
    assert source.train.class_counts and source.test.class_counts
    assert len(set(source.classes)) == len(source.classes)


@by_name
def test_each_dataset_names_its_hosts_and_its_citation(source: DatasetSource) -> None:
    assert source.hosts and all(re.fullmatch(r"https?://.+/", host) for host in source.hosts)
    assert source.terms and source.cite and not source.cite.endswith(".")
    assert len({file.name for file in files_of(source)}) == len(files_of(source))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_content_checksum_of_the_names_file_is_that_of_the_names(name: str) -> None:
    source = find_dataset(name)
    assert source.names and source.names.content == hashlib.sha256("\n".join(source.classes).encode()).hexdigest()


def test_the_official_names_file_of_cifar100_can_be_rebuilt_from_the_names() -> None:
    coarse = (
        "aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture "
        "insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores "
        "medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2"
    ).split()
    numbers = iter(range(1, 200))

    def word(text: str) -> bytes:  # as Python 2 wrote it, with its number in the memo
        return b"U" + bytes([len(text)]) + text.encode() + b"q" + bytes([next(numbers)])

    def named(name: str, names_text: list[str]) -> bytes:
        return word(name) + b"]q" + bytes([next(numbers)]) + b"(" + b"".join(word(text) for text in names_text) + b"e"

    source = find_dataset("cifar100")
    head = b"\x80\x02}q" + bytes([next(numbers)]) + b"("
    blob = head + named("fine_label_names", list(source.classes)) + named("coarse_label_names", coarse) + b"u."
    assert source.names and (len(blob), hashlib.md5(blob).hexdigest(), hashlib.sha256(blob).hexdigest()) == source.names.digest


def test_the_download_size_is_that_of_the_archive_or_of_the_files() -> None:
    assert find_dataset("cifar10").download_size == 170_498_071
    assert find_dataset("svhn").download_size == 182_040_794 + 64_275_384
