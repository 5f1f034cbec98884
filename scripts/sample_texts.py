"""Print texts of the project drawn at random, to be read by somebody who has not seen the code.

    python scripts/sample_texts.py --n 25 --seed 0 [--context 6]

Docstrings, comments, error messages and paragraphs of the documents are drawn in equal parts. With --context, the lines around
each text are printed as well, as a reader of the file sees them; the lines of the text begin with `>`.
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
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHORTEST = 25  # characters; below it a text is a label rather than a sentence


class SampledText(NamedTuple):
    """Text with its place: the file, and the first and last line of what is printed with it."""

    text: str
    path: Path
    first: int
    last: int

    def with_context(self, n_lines: int) -> str:
        """Return the text and, if `n_lines` is above 0, its lines with as many lines before and after it."""
        if not n_lines:
            return self.text
        lines = self.path.read_text(encoding="utf-8").splitlines()
        start, stop = max(1, self.first - n_lines), min(len(lines), self.last + n_lines)
        marked = (f"{'>' if self.first <= k <= self.last else ' '} {lines[k - 1]}" for k in range(start, stop + 1))
        return "\n".join([self.text, "", *marked])


def docstrings(path: Path, tree: ast.Module) -> Iterator[SampledText]:
    """Yield each docstring with its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= SHORTEST:
                name, at = getattr(node, "name", "module"), node.body[0]
                place = f"{path.relative_to(ROOT)}, docstring of {name}: {text}"
                yield SampledText(place, path, at.lineno, at.end_lineno or at.lineno)


def comments(path: Path, source: str) -> Iterator[SampledText]:
    """Yield each comment with its code: the line that it ends, or the line below a comment of its own lines."""
    lines = source.splitlines()
    block: list[str] = []
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            block.append(line.strip())
            continue
        if block and len(" ".join(block)) >= SHORTEST:
            text = f"{path.relative_to(ROOT)}:{number - len(block)}, comment: {' '.join(block)} (above: {line.strip()})"
            yield SampledText(text, path, number - len(block), number - 1)
        block = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("# ").strip()
        ends_code = token.type == tokenize.COMMENT and not token.line.lstrip().startswith("#")
        if ends_code and len(text) >= SHORTEST and "type: ignore" not in text:
            at = token.start[0]
            yield SampledText(f"{path.relative_to(ROOT)}:{at}, comment: {token.line.strip()}", path, at, at)


def messages(path: Path, tree: ast.Module) -> Iterator[SampledText]:
    """Yield the text of each raised error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = ast.unparse(node.exc.args[0])
            if len(text) >= SHORTEST and text[0] in "'\"f":
                place = f"{path.relative_to(ROOT)}:{node.lineno}, error message: {text}"
                yield SampledText(place, path, node.lineno, node.end_lineno or node.lineno)


def paragraphs(path: Path) -> Iterator[SampledText]:
    """Yield the paragraphs of a document, without tables and code."""
    source = path.read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), source, flags=re.DOTALL)
    for found in re.finditer(r"\S.*?(?=\n\s*\n|\Z)", text, flags=re.DOTALL):
        paragraph, first = found.group().strip(), text.count("\n", 0, found.start()) + 1
        if len(paragraph) >= SHORTEST and not paragraph.startswith(("|", "#", "!", "<")):
            place = f"{path.relative_to(ROOT)}, paragraph: {paragraph}"
            yield SampledText(place, path, first, first + paragraph.count("\n"))


def all_texts() -> dict[str, list[SampledText]]:
    """Return the texts of the project by their sort."""
    found: dict[str, list[SampledText]] = {"docstring": [], "comment": [], "message": [], "paragraph": []}
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
    parser.add_argument("--context", type=int, default=0, help="lines to print before and after each text")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    sorts = list(all_texts().values())
    for number in range(options.n):
        print(f"{number + 1}. {draw.choice(sorts[number % len(sorts)]).with_context(options.context)}\n")


if __name__ == "__main__":
    main()
