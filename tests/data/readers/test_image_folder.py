"""Images of a folder, and their labels for all the ways in which label files name them."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from samekind.data.readers.image_folder import FileFolder, _NameMatcher, find_images, read_folder_labels
from samekind.errors import DataError, LabelError


def plant(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(root / name, format="PNG")
    return root


def labels(root: Path, text: str, *, where: str = "labels.csv", column: str | None = None) -> dict[str, str | None]:
    """Return the labels by image name."""
    path = root / where
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    found = find_images(root)
    return {found.names[i]: label for i, label in read_folder_labels(found, path, column).labels.items()}


def reasons(found: FileFolder) -> dict[str, str]:
    return {one.path: one.reason for one in found.skipped}


# ---------------------------------------------------------------- files


def test_images_are_found_at_any_depth_and_in_order(tmp_path: Path) -> None:
    plant(tmp_path, "b.png", "a/2.JPG", "a/b/c/1.jpeg", "Z.tiff", "with space.png", "ünï/写真.PNG", "new\nline.png")
    names = find_images(tmp_path).names
    assert names == ("Z.tiff", "a/2.JPG", "a/b/c/1.jpeg", "b.png", "new\nline.png", "with space.png", "ünï/写真.PNG")
    assert find_images(tmp_path).files[1] == tmp_path / "a" / "2.JPG"


def test_file_names_that_are_not_valid_text_are_kept(tmp_path: Path) -> None:
    plant(tmp_path, os.fsdecode(b"\xff.png"))
    assert find_images(tmp_path).names == ("\udcff.png",)


def test_hidden_and_system_files_are_ignored(tmp_path: Path) -> None:
    plant(tmp_path, "a.png", "._a.png", ".hidden/b.png", "__MACOSX/c.png", ".DS_Store")
    for name in ("Thumbs.db", "desktop.ini", "notes.txt", "labels.csv"):
        (tmp_path / name).write_text("x")
    found = find_images(tmp_path)
    assert found.names == ("a.png",) and found.skipped == ()


def test_an_image_without_suffix_is_found_and_a_text_file_is_not(tmp_path: Path) -> None:
    plant(tmp_path, "IMG_0001")
    (tmp_path / "LICENSE").write_text("free")
    assert find_images(tmp_path).names == ("IMG_0001",)


def test_a_folder_with_an_image_suffix_is_skipped_unless_it_holds_images(tmp_path: Path) -> None:
    plant(tmp_path, "a.png", "full.png/b.png")
    (tmp_path / "empty.png").mkdir()
    found = find_images(tmp_path)
    assert found.names == ("a.png", "full.png/b.png")
    assert reasons(found) == {"empty.png": "a folder, not an image"}


def test_links_to_files_and_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    plant(tmp_path / "else", "b.png", "c.png")
    root = plant(tmp_path / "root", "a.png")
    (root / "l.png").symlink_to(tmp_path / "else" / "b.png")
    (root / "more").symlink_to(tmp_path / "else")
    assert find_images(root).names == ("a.png", "l.png", "more/b.png", "more/c.png")


def test_broken_and_circular_links_are_skipped(tmp_path: Path) -> None:
    plant(tmp_path / "else", "b.png")
    (tmp_path / "else" / "back").symlink_to(tmp_path / "else")
    root = plant(tmp_path / "root", "a.png", "sub/b.png")
    targets: dict[str, str | Path] = {
        "broken.png": "gone.png",
        "self.png": "self.png",
        "here": ".",
        "sub/up": "..",
        "around": tmp_path,
        "x1": tmp_path / "else",
        "x2": tmp_path / "else",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    found = find_images(root)
    assert found.names == ("a.png", "sub/b.png", "x1/b.png")
    assert reasons(found) == {
        "broken.png": "a link that leads nowhere ('gone.png')",
        "self.png": "a link that leads nowhere ('self.png')",
        "here": f"a link to {root}, which is read anyway",
        "sub/up": f"a link to {root}, which is read anyway",
        "around": f"a link to {tmp_path}, a folder that contains this one",
        "x1/back": f"a link to {tmp_path / 'else'}, which is read already",
        "x2": f"a link to {tmp_path / 'else'}, which is read already",
    }


def test_a_pipe_with_an_image_suffix_is_skipped(tmp_path: Path) -> None:
    plant(tmp_path, "a.png")
    os.mkfifo(tmp_path / "b.png")
    os.mkfifo(tmp_path / "c")
    assert reasons(find_images(tmp_path)) == {"b.png": "not a regular file"}


def test_the_cache_is_not_searched(tmp_path: Path) -> None:
    plant(tmp_path, "a.png", "run/cache/b.png")
    assert find_images(tmp_path, exclude=tmp_path / "run" / "cache").names == ("a.png",)


def test_a_folder_without_images_is_refused_with_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_text("x")
    (tmp_path / "b.png").symlink_to("gone")
    with pytest.raises(DataError, match=r"holds no image .*\(1 other files\)\. The first of 1 skipped files: 'b.png': a link"):
        find_images(tmp_path)


def test_files_without_permission_are_skipped() -> None:
    script = """
import os, sys
from pathlib import Path
from samekind.data.user_data import open_data
root = Path(sys.argv[1])
open_data(root / "out", cache=root / "warm")  # whatever is imported later is imported here
if os.geteuid() == 0:
    os.setuid(65534)
data = open_data(root / "in", cache=root / "cache")
print(*data.names, *data.skipped, sep="|")
"""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        plant(root / "in", "a.png", "closed.png", "shut/b.png")
        plant(root / "out", "a.png")
        root.chmod(0o777)
        (root / "in" / "closed.png").chmod(0)
        (root / "in" / "shut").chmod(0)
        expected = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, check=True).stdout
        (root / "in" / "shut").chmod(0o777)
    assert expected.strip() == "a.png|'shut': permission denied|'closed.png': permission denied"


# ---------------------------------------------------------------- class folders


def test_without_a_label_file_the_top_folder_is_the_class(tmp_path: Path) -> None:
    names = ("cat/1.png", "cat/old/2.png", "dog/1.png", "Unlabelled/3.png", "unlabeled/4.png", "unknown/5.png", "6.png")
    found = find_images(plant(tmp_path, *names))
    by_name = {found.names[i]: label for i, label in read_folder_labels(found).labels.items()}
    assert by_name == {"cat/1.png": "cat", "cat/old/2.png": "cat", "dog/1.png": "dog"}


def test_a_label_file_takes_precedence_over_class_folders(tmp_path: Path) -> None:
    plant(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "labels.csv").write_text("path,label\ncat/1.png,tiger\n")
    assert read_folder_labels(find_images(tmp_path)).labels == {0: "tiger"}


def test_a_folder_without_subfolders_has_no_labels(tmp_path: Path) -> None:
    assert read_folder_labels(find_images(plant(tmp_path, "1.png", "2.png"))).labels == {}


# ---------------------------------------------------------------- a file of labels


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na.png,cat\nsub/b.png,dog\n",
        "label,path\ncat,a.png\ndog,sub/b.png\n",
        "\ufeffPath;Label\r\na.png;cat\r\nsub\\b.png;dog\r\n",
        "filename\tclass\na.png\tcat\nsub/b.png\tdog\n",
        "a.png,cat\nsub/b.png,dog\n",
        "cat,a.png\ndog,sub/b.png\n",
        "Datei;Klasse\na.png;cat\nsub/b.png;dog\n",
        "n,split,image,label\n1,train,a.png,cat\n2,train,sub/b.png,dog\n",
        "image,label\n./a.png, cat \n.//sub/../sub/b.png,dog\n",
        "image,label\nA.PNG,cat\nSUB/B.png,dog\n",
        "id,label\na,cat\nsub/b,dog\n",
        "id,label\na,cat\nb,dog\n",
        "path,label\na.png,cat\nb.png,dog\n",
        "path,label\nphotos/a.png,cat\nphotos/sub/b.png,dog\n",
        "path,label\nC:\\Users\\me\\photos\\a.png,cat\nC:\\Users\\me\\photos\\sub\\b.png,dog\n",
        "path,label\n/home/other/photos/a.png,cat\n/home/other/photos/sub/b.png,dog\n",
        '"path","label"\n"a.png","cat"\n"sub/b.png","dog"\n',
    ],
)
def test_all_forms_of_a_label_file_give_the_same_labels(tmp_path: Path, text: str) -> None:
    root = plant(tmp_path / "photos", "a.png", "sub/b.png", "sub/c.png")
    assert labels(root, text) == {"a.png": "cat", "sub/b.png": "dog"}


def test_absolute_paths_on_this_machine_are_found(tmp_path: Path) -> None:
    root = plant(tmp_path / "photos", "a.png", "b.png")
    (tmp_path / "link").symlink_to(root)
    assert labels(root, f"path,label\n{root / 'a.png'},cat\n") == {"a.png": "cat"}
    assert labels(tmp_path / "link", f"path,label\n{root / 'a.png'},cat\n{tmp_path}/link/b.png,dog\n") == {
        "a.png": "cat",
        "b.png": "dog",
    }


def test_paths_can_be_relative_to_the_label_file(tmp_path: Path) -> None:
    root = plant(tmp_path / "photos", "sub/a.png")
    assert labels(root, "path,label\n../photos/sub/a.png,cat\n", where="../labels/l.csv") == {"sub/a.png": "cat"}


def test_composed_and_decomposed_characters_match(tmp_path: Path) -> None:
    root = plant(tmp_path, unicodedata.normalize("NFD", "Käfer.png"))
    assert list(labels(root, "path,label\nKäfer.png,bug\n").values()) == ["bug"]


def test_exact_names_build_no_table_of_other_normalizations(tmp_path: Path) -> None:
    finder = _NameMatcher(FileFolder(tmp_path, ("a/1.jpg", "b/2.jpg"), ()), tmp_path)
    assert [finder("a/1.jpg"), finder("b/2.jpg")] == [0, 1]
    assert len(finder._tables) == 1
    assert [finder("2.JPG"), finder("A/1")] == [1, 0]


def test_a_first_row_whose_label_resembles_a_header_is_kept(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png", "b.png")
    assert labels(root, "a.png,y\nb.png,n\n") == {"a.png": "y", "b.png": "n"}


def test_the_label_column_can_be_chosen(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png")
    assert labels(root, "path,label,breed\na.png,cat,manx\n", column="Breed") == {"a.png": "manx"}
    with pytest.raises(LabelError, match="no column 'bred'; did you mean 'breed'"):
        labels(root, "path,label,breed\na.png,cat,manx\n", column="bred")


def test_an_empty_label_means_unlabelled(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png", "b.png", "c.png")
    assert labels(root, "path,label\na.png,cat\nb.png,\nc.png,-1\n") == {"a.png": "cat", "b.png": None, "c.png": None}


def test_a_repeated_label_is_accepted_and_an_empty_one_does_not_remove_it(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png", "b.png")
    assert labels(root, "path,label\na.png,cat\n./a.png,cat\na.png,\nb.png,\nb.png,dog\n") == {"a.png": "cat", "b.png": "dog"}


def test_two_labels_for_one_image_are_refused_with_both_lines(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png")
    with pytest.raises(LabelError, match=r"'./a.png' is 'cat' in line 2 and 'dog' in line 4. Remove the wrong line"):
        labels(root, "path,label\na.png,cat\n\n./a.png,dog\n")


def test_lines_without_an_image_are_skipped_with_their_line_number(tmp_path: Path) -> None:
    root = plant(tmp_path, "a.png")
    (root / "labels.csv").write_text("path,label\na.png,cat\ngone.png,dog\n")
    (missing,) = read_folder_labels(find_images(root)).missing
    assert str(missing) == "'gone.png': listed in line 3 of labels.csv, but there is no such image"


def test_a_local_path_outside_the_folder_does_not_match_an_image_inside(tmp_path: Path) -> None:
    plant(tmp_path / "other", "a.png")
    root = plant(tmp_path / "photos", "a.png", "b.png")
    assert labels(root, f"path,label\n{tmp_path}/other/a.png,cat\nb.png,dog\n") == {"b.png": "dog"}


def test_a_path_in_another_subfolder_does_not_match_by_file_name(tmp_path: Path) -> None:
    root = plant(tmp_path / "photos", "cat/1.png", "b.png")
    assert labels(root, "path,label\ndog/1.png,dog\n/x/dog/1.png,dog\nb.png,bee\n") == {"b.png": "bee"}


def test_a_name_that_fits_two_images_is_refused(tmp_path: Path) -> None:
    root = plant(tmp_path, "x/1.png", "y/1.png")
    with pytest.raises(LabelError, match=r"'1.png' in the label file could mean 'x/1.png' or 'y/1.png'"):
        labels(root, "path,label\n1.png,cat\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty. Expected two columns, for example: path,label"),
        ("path\na.png\n", "has one column"),
        (
            "path,label\nx.png,cat\ny.png,dog\n",
            "names no image of this data: none of its 2 lines matches. The first line names 'x.png'",
        ),
        ("path,kind,sort\na.png,cat,dog\n", "no column is called label, class, target, y"),
        ("a.png,cat,dog\n", "Name the label column in the first line"),
    ],
)
def test_an_unusable_label_file_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LabelError) as error:
        labels(plant(tmp_path, "a.png"), text)
    assert message in str(error.value)


def test_a_missing_label_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="cannot be opened"):
        read_folder_labels(find_images(plant(tmp_path, "a.png")), tmp_path / "l.csv")


NAME = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zs"), exclude_characters="/\\.", include_characters=" \n"), min_size=1
)
LABEL = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda text: text.strip() not in ("", "-1") and text == text.strip()
)


def test_a_file_that_is_called_like_a_header_leaves_the_header_a_header(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\nPATH.png,cat\n", encoding="utf-8")
    assert read_folder_labels(FileFolder(tmp_path, ("PATH.png",), ())).labels == {0: "cat"}


@settings(max_examples=60, deadline=None)
@given(
    table=st.dictionaries(NAME.filter(lambda n: n == n.strip() and len(n.encode()) < 60), LABEL, min_size=1, max_size=6),
    separator=st.sampled_from(",;\t"),
)
def test_any_names_and_labels_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, str], separator: str
) -> None:
    root = tmp_path_factory.mktemp("photos")
    names = [f"{name}.png" for name in table]
    found = FileFolder(root, tuple(names), ())
    with (root / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(
            [("path", "label"), *zip(names, table.values(), strict=True)]
        )
    composed = [unicodedata.normalize("NFC", label) for label in table.values()]
    assert read_folder_labels(found).labels == dict(enumerate(composed))
