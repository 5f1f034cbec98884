"""samekind: label a handful, sort the rest, ask what is alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["SemiSupervisedClassifier", "__version__"]

if TYPE_CHECKING:
    from samekind.estimator import SemiSupervisedClassifier as SemiSupervisedClassifier


def __getattr__(name: str) -> Any:
    # importing the package must be instant: torch is loaded when the estimator is first asked for
    if name == "SemiSupervisedClassifier":
        from samekind.estimator import SemiSupervisedClassifier

        return SemiSupervisedClassifier
    raise AttributeError(f"module 'samekind' has no attribute {name!r}")
