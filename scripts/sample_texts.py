"""Print texts of the project drawn at random, to be read by somebody who has not seen the code.

    python scripts/sample_texts.py --n 25 --seed 0

Docstrings, comments, error messages and paragraphs of the documents are drawn in equal parts.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORTEST = 25  # characters; below it a text is a label rather than a sentence


def docstrings(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield each docstring with its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= SHORTEST:
                name = getattr(node, "name", "module")
                yield f"{path.relative_to(ROOT)}, docstring of {name}: {text}"


def comments(path: Path, source: str) -> Iterator[str]:
    """Yield each comment with its code: the line that it ends, or the line below a comment of its own lines."""
    lines = source.splitlines()
    block: list[str] = []
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            block.append(line.strip())
            continue
        if block and len(" ".join(block)) >= SHORTEST:
            yield f"{path.relative_to(ROOT)}:{number - len(block)}, comment: {' '.join(block)} (above: {line.strip()})"
        block = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("# ").strip()
        ends_code = token.type == tokenize.COMMENT and not token.line.lstrip().startswith("#")
        if ends_code and len(text) >= SHORTEST and "type: ignore" not in text:
            yield f"{path.relative_to(ROOT)}:{token.start[0]}, comment: {token.line.strip()}"


def messages(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the text of each raised error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = ast.unparse(node.exc.args[0])
            if len(text) >= SHORTEST and text[0] in "'\"f":
                yield f"{path.relative_to(ROOT)}:{node.lineno}, error message: {text}"


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a document, without tables and code."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        if len(paragraph) >= SHORTEST and not paragraph.lstrip().startswith(("|", "#", "!", "<")):
            yield f"{path.relative_to(ROOT)}, paragraph: {paragraph.strip()}"


def all_texts() -> dict[str, list[str]]:
    """Return the texts of the project by their sort."""
    found: dict[str, list[str]] = {"docstring": [], "comment": [], "message": [], "paragraph": []}
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        found["docstring"] += docstrings(path, tree)
        found["comment"] += comments(path, source)
        found["message"] += messages(path, tree)
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        found["paragraph"] += paragraphs(path)
    return found


def main() -> None:
    """Draw and print the texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=25, help="number of texts")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    sorts = list(all_texts().values())
    for number in range(options.n):
        print(f"{number + 1}. {draw.choice(sorts[number % len(sorts)])}\n")


if __name__ == "__main__":
    main()
