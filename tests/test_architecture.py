"""Import map: which package may import which, and which modules may name a method."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tests.sources import parsed

from samekind.methods import METHODS

PACKAGE = Path(__file__).parents[1] / "src" / "samekind"
FILES = sorted(PACKAGE.rglob("*.py"))
# package or module -> those it may import at run time; "package" is samekind/__init__.py, which holds the version
MAY_IMPORT = {
    "errors": "",
    "files": "errors",
    "flops": "",
    "progress": "",
    "clock": "",
    "image_layout": "",
    "parameters": "errors",
    "config": "errors",
    "data": "image_layout progress errors files",
    "nets": "image_layout errors files flops",
    "losses": "",
    "graphs": "flops errors",
    "stacking": "graphs errors",
    "methods": "config files data nets losses graphs stacking errors",
    "training": "clock config progress parameters data losses methods files flops errors",
    "evaluation": "",
    "search": "errors",
    "defaults": "image_layout parameters data nets graphs training errors",
    "tabular": "data nets errors",
    "preprocessing": "clock image_layout progress data nets stacking tabular errors",
    "model_file": "data nets methods defaults files errors",
    "model": "image_layout data tabular nets methods search defaults preprocessing model_file files errors",
    "fitting": "clock image_layout progress data graphs nets stacking methods training defaults parameters preprocessing model"
    " files flops errors",
    "fitted_estimator": "data nets search model errors",
    "estimator": "progress data nets training fitting fitted_estimator model files errors",
    "model_selection": "data errors",
    "bench": "image_layout config progress flops data tabular nets methods training search defaults evaluation estimator"
    " fitting model files errors package",
    "project": "clock progress data nets search training preprocessing fitting estimator files errors",
    "server": "progress data tabular nets graphs search preprocessing estimator model project files errors package",
    "commands": "progress data bench server files errors",
    "cli": "clock progress commands project server package",
    "package": "",
    "__main__": "cli",
}
FOR_TYPES_OR_LAZILY = {"package": "estimator model_selection"}  # under TYPE_CHECKING or in a function of __init__.py


def package_of(path: Path) -> str:
    """Return the name of the subpackage or top-level module of a file."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "package" if first == "__init__" else first


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the module of every import, and samekind.x for `from samekind import x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the package; write samekind.…"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "samekind" else [module]


def packages_imported(tree: ast.AST) -> set[str]:
    inside = (name.split(".") for name in imports_of(tree) if name.split(".")[0] == "samekind")
    return {parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "package" for parts in inside}


def at_run_time(tree: ast.Module) -> ast.Module:
    """Return the module without the blocks under `if TYPE_CHECKING:`."""
    return ast.Module([node for node in tree.body if not _is_for_types(node)], [])


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def string_constants(tree: ast.AST) -> set[str]:
    """Return all string constants; one of the form "a+b" is split into its parts."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {part for constant in constants for part in constant.split("+")}


def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=short)
def test_a_package_imports_only_what_the_map_allows(path: Path) -> None:
    package = package_of(path)
    allowed = {package, *MAY_IMPORT[package].split()}
    lazily = set(FOR_TYPES_OR_LAZILY.get(package, "").split()) if package == "package" else set()
    outside = packages_imported(at_run_time(parsed(path))) - allowed - lazily
    assert not outside, f"{package} may not import {outside}; see MAY_IMPORT"


@pytest.mark.parametrize("path", FILES, ids=short)
def test_imports_for_types_follow_the_map_too(path: Path) -> None:
    package = package_of(path)
    allowed = {package, *MAY_IMPORT[package].split(), *FOR_TYPES_OR_LAZILY.get(package, "").split()}
    assert packages_imported(parsed(path)) <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "import samekind.methods.registry",
        "from samekind.training.loop import fit",
        "from samekind import estimator",
        "def f():\n    from samekind.server.app import create_app",
    ],
)
def test_a_planted_import_against_the_map_is_found(source: str) -> None:
    allowed = {"data", *MAY_IMPORT["data"].split()}
    assert packages_imported(at_run_time(ast.parse(source))) - allowed


def test_a_planted_relative_import_is_found() -> None:
    with pytest.raises(AssertionError, match="relative imports hide the package"):
        packages_imported(ast.parse("from ..methods import registry"))


def test_the_map_has_no_cycles() -> None:
    packages = {package: allowed.split() for package, allowed in MAY_IMPORT.items()}
    order = list(TopologicalSorter(packages).static_order())
    assert (
        order.index("data") < order.index("methods") < order.index("training") < order.index("estimator") < order.index("cli")
    )


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) == "training"], ids=short)
def test_training_knows_the_base_class_and_no_method(path: Path) -> None:
    of_methods = {name for name in imports_of(parsed(path)) if name.startswith("samekind.methods")}
    assert of_methods <= {"samekind.methods.base"}


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) not in ("methods", "bench")], ids=short)
def test_only_methods_and_the_bench_know_a_method_by_name(path: Path) -> None:
    named = string_constants(parsed(path)) & set(METHODS)
    assert not named


REORDERS_CHANNELS = re.compile(r"\b(?:permute|transpose)\(0, [23], |\bmoveaxis\(")


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != "image_layout.py" and path.parent.name != "hub"], ids=short
)
def test_only_image_layout_and_the_readers_of_dataset_files_know_the_order_of_channels(path: Path) -> None:
    assert not REORDERS_CHANNELS.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("source", ["x.permute(0, 3, 1, 2)", "np.moveaxis(x, 3, 1)", "x.transpose(0, 2, 3, 1)"])
def test_a_planted_change_of_the_order_of_channels_is_found(source: str) -> None:
    assert REORDERS_CHANNELS.search(source)


WITHOUT_TORCH = {"compare", "result_tables", "text_table", "html_report", "render"}


@pytest.mark.parametrize("name", ["records", *(f"reporting/{name}" for name in sorted(WITHOUT_TORCH))])
def test_tables_are_rendered_without_torch(name: str) -> None:
    path = PACKAGE / "bench" / f"{name}.py"
    inside = {one for one in imports_of(parsed(path)) if one.startswith("samekind.")}
    light = {"samekind.bench", "samekind.bench.records", "samekind.bench.reporting", "samekind.errors", "samekind.__version__"}
    light |= {f"samekind.bench.reporting.{one}" for one in {*WITHOUT_TORCH, "bench_figures"}}
    assert inside <= light
    assert "torch" not in {one.split(".")[0] for one in imports_of(parsed(path))}


def test_the_guide_for_contributors_names_every_package_and_module_at_the_top() -> None:
    guide = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    top = {
        f"{path.name}/" if path.is_dir() else path.name for path in PACKAGE.iterdir() if not path.name.startswith(("_", "."))
    }
    assert [name for name in sorted(top - {"py.typed"}) if f"`{name}`" not in guide] == []


def test_no_package_is_called_utils() -> None:
    assert not {"utils", "helpers", "common", "misc"} & {part for path in FILES for part in path.with_suffix("").parts}
