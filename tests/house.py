"""Checks on the sources themselves: private words, names used twice, private access, docstring form.

Each check is a function from sources to a list of findings, so that a test can plant an example and see it found.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Whole words of an identifier (split at underscores and capitals) that the field does not use, with the field's word.
BANNED_PARTS = {
    "alike": "similar / most_similar",
    "answering": "eval_mode",
    "asked": "request",
    "asking": "search",
    "guess": "pseudo_label",
    "guessed": "predicted / pseudo_label",
    "guesses": "pseudo_labels",
    "heard": "above_threshold / mask",
    "hears": "uses",
    "intake": "preprocessing",
    "keeper": "checkpointer",
    "looks": "views / log records",
    "photo": "image",
    "photos": "images",
    "picture": "image",
    "pictures": "images",
    "pile": "unlabelled project",
    "piles": "unlabelled projects",
    "recipe": "defaults / preset",
    "rides": "wraps",
    "riding": "wrapper",
    "said": "predicted / logged",
    "says": "predicts",
    "shelf": "checkpoint_dir",
    "tells": "logs",
    "told": "logged",
    "untrained": "baseline",
    "wanted": "config / requested",
    "wish": "config / target",
    "wishes": "configs / targets",
}
# Whole identifiers. As parts of longer ones (avg_pool, look_up, follow_symlinks) the field does use these words.
BANNED_IDENTIFIERS = {
    "Moving": "TrainState",
    "Pool": "Dataset",
    "answer": "prediction",
    "answers": "predictions",
    "averaging": "ema",
    "desk": "app_state",
    "Desk": "AppState",
    "follow": "similarity_distillation",
    "frozen_copy": "ema_copy",
    "in_use": "active_model",
    "labels_first": "supervised_warmup",
    "left_out": "leave_one_out",
    "look": "view / forward pass",
    "move_towards": "update_ema",
    "own_data": "user_data",
    "pool": "dataset / unlabelled set",
    "say": "log",
    "several": "split_csv",
    "tell": "log",
    "things": "samples / items",
    "trust": "unlabelled_weight",
    "words": "metadata",
    "write_whole": "atomic_write",
}
# Phrases in docstrings, comments, messages and documents.
BANNED_PHRASES = {
    r"\bslow (copy|copies|average)\b": "EMA teacher",
    r"\b(weak|strong|noisy|second|two|several|one|last|each) looks?\b(?! (at|up|for|like)\b)": "view or forward pass",
    r"\ba look at\b": "a forward pass over / a pass over",
    r"\bguess(es|ed)?\b": "pseudo-label or prediction",
    r"\bheard\b": "above the threshold",
    r"\b(goes|go|went|going) on (with|where|from|as if)\b": "resume",
    r"\b(is|are|was|were|be|been) taken up\b": "resume",
    r"(?<!Ask what is )\balike\b": "similar",
    r"\bpictures?\b": "image",
    r"\bpiles?\b": "unlabelled project",
    r"\brecipes?\b": "defaults or preset",
    r"\b(rides?|riding) on\b": "wraps",
    r"\bthe (whole )?pool\b(?! of)": "the unlabelled set or the dataset",
    r"\blabels? (alone )?first\b": "supervised warm-up",
    r"\b(left-out|left out) labels?\b": "cross-validation",
    r"\bsharpened answers?\b": "sharpened targets",
    r"\bas the (paper|page|docs?) has? it\b": "say what it is",
}
# First words of function docstrings: what the function does, as an order.
IMPERATIVES = set(
    """
    Accept Accumulate Activate Adapt Add Adjust Advance Align Allow Answer Append Apply Archive Ask Assemble Assign Attach
    Augment Average Back Balance Begin Bind Blend Bound Break Bring Broadcast Build Cache Calibrate Call Cancel Capture
    Carry Cast Center Change Check Choose Clamp Clean Clear Clip Close Cluster Collect Color Combine Compare Complete Compose
    Compress Compute Concatenate Configure Confirm Connect Construct Consume Contract Convert Convolve Copy Correct Count
    Create Crop Cut Deactivate Decide Declare Decode Decompress Decorate Decrease Defer Define Delete Deliver Derive Describe
    Detect Determine Digest Discard Disable Discover Distribute Divide Download Draw Drop Duplicate Eliminate Emit Empty
    Enable Encode End Enforce Enqueue Ensure Enter Enumerate Escape Estimate Evaluate Evict Exchange Exclude Execute Exit
    Expand Explain Export Extend Extract Fail Fetch Fill Filter Find Finish Fit Fix Flatten Flip Flush Fold Follow Force
    Format Forward Fuse Gather Generate Get Give Group Guard Guess Halve Handle Hash Hold Identify Ignore Impute Import
    Include Increase Infer Initialize Insert Inspect Install Interpolate Interpret Invert Invoke Iterate Join Jump Keep Kill
    Label Launch Lay Leave Let Limit Link List Listen Load Locate Lock Log Look Lower Make Map Mark Mask Match Measure Merge
    Migrate Mirror Mix Monitor Move Multiply Name Normalize Note Notify Number Observe Obtain Offer Omit Open Optimize Order
    Overwrite Pack Pad Parse Partition Pass Pause Perform Permute Persist Pick Place Plan Plot Point Pop Populate Position
    Predict Prefer Prefix Prepare Preserve Prevent Print Process Produce Project Propagate Prove Provide Prune Publish Pull
    Push Put Quantize Query Queue Raise Ramp Randomize Rank Read Rebuild Receive Recognize Recompute Reconstruct Record
    Recover Redirect Redo Reduce Refer Refit Refresh Refuse Register Reject Release Reload Relabel Remember Remove Rename
    Render Renew Reorder Repeat Replace Replay Report Represent Request Require Reset Reshape Resize Resolve Respond Restart
    Restore Restrict Resume Retry Return Reuse Reverse Revert Rewrite Rotate Round Run Sample Save Scale Scan Schedule Score
    Search Seed Select Send Separate Serialize Serve Set Shape Share Sharpen Shear Shift Shorten Show Shrink Shuffle Shut Sign
    Simulate Skip Slice Smooth Solve Sort Split Spread Stack Standardize Start State Step Stop Store Stream Stretch Strip Submit
    Subtract Suggest Sum Summarize Suppress Swap Switch Symmetrize Synchronize Take Tell Terminate Test Tie Time Tokenize
    Toggle Touch Track Train Transform Translate Transpose Traverse Treat Trim Truncate Try Tune Turn Undo Unflatten Unlink
    Unpack Unregister Unzip Update Upload Use Validate Verify View Visit Wait Wake Walk Warm Warn Watch Weigh Weight Whiten
    Widen Work Wrap Write Yield Zero Zip
    """.split()
)
# Private words that these files need, because they are the words of others.
ALLOWED = {
    "src/samekind/bench/running/tune.py": {"tell"},  # a method of optuna's Study
    "src/samekind/data/readers/image_folder.py": {"picture", "photo"},  # headers in people's label files
}
NAMED_TUPLE_API = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}


class Finding(NamedTuple):
    """One place that breaks a rule."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def parts_of(identifier: str) -> list[str]:
    """Return the lower-case words of an identifier, split at underscores and capitals."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def _prose(text: str, file: str, first_line: int) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines()):
        for pattern, instead in BANNED_PHRASES.items():
            found = re.search(pattern, line, re.IGNORECASE)
            if found:
                yield Finding(file, first_line + number, f"'{found.group(0)}' is a private word; use: {instead}")


def banned_words(source: str, file: str = "source.py") -> list[Finding]:
    """Return the private words in the identifiers, comments and strings of a Python source."""
    findings: list[Finding] = []
    allowed = ALLOWED.get(file, set())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            if token.string in BANNED_IDENTIFIERS:
                instead = BANNED_IDENTIFIERS[token.string]
                findings.append(Finding(file, token.start[0], f"'{token.string}' is a private word; use: {instead}"))
            for part in set(parts_of(token.string)) & BANNED_PARTS.keys():
                findings.append(
                    Finding(file, token.start[0], f"'{token.string}' holds a private word; use: {BANNED_PARTS[part]}")
                )
        elif token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            findings.extend(_prose(token.string, file, token.start[0]))
    return [finding for finding in findings if not any(f"'{word}'" in finding.text for word in allowed)]


def banned_phrases(text: str, file: str = "page.md") -> list[Finding]:
    """Return the private phrases in a document or a script that is not Python."""
    return list(_prose(text, file, 1))


def repeated_classes(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the classes that are defined in more than one place, with their files."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(file)
    return {name: files for name, files in places.items() if len(files) > 1}


def repeated_modules(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the module names that occur in more than one package, with their paths."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in files:
        if not path.stem.startswith("__"):
            places[path.stem].append(str(path))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def private_access(source: str, file: str = "source.py") -> list[Finding]:
    """Return the uses of private attributes or names that this module does not define itself."""
    tree = ast.parse(source)
    own = set(_private_definitions(tree))
    findings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if _is_private(alias.name)]
            findings += [Finding(file, node.lineno, f"imports {name} of {node.module}") for name in names]
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own and not _is_own(node.value):
            findings.append(Finding(file, node.lineno, f"touches {ast.unparse(node)}, which another class keeps to itself"))
    return findings


def _private_definitions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_private(name: str) -> bool:
    return (
        name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE_API and name not in ("_", "_exit")
    )  # os._exit is public


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def docstring_form(source: str, file: str = "source.py") -> list[Finding]:
    """Return the functions whose docstring does not begin with an imperative and end its first line with a full stop."""
    findings = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        text = ast.get_docstring(node)
        if text is None or _is_property(node):
            continue
        first = text.split("\n\n")[0].strip()
        word = re.split(r"[\s,.:;]", first, maxsplit=1)[0]
        if word not in IMPERATIVES:
            findings.append(
                Finding(file, node.lineno, f"{node.name}: begins with '{word}'; expected an imperative: \"{first[:70]}\"")
            )
        elif not first.endswith((".", ":", "!", "?")):
            findings.append(Finding(file, node.lineno, f"{node.name}: the first sentence has no full stop"))
    return findings


def _is_property(node: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
