"""samekind: semi-supervised learning with a learned graph. Label a few samples, predict the rest, search by similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["PartialLabelKFold", "SemiSupervisedClassifier", "__version__"]

if TYPE_CHECKING:
    from samekind.estimator import SemiSupervisedClassifier as SemiSupervisedClassifier
    from samekind.model_selection import PartialLabelKFold as PartialLabelKFold


def __getattr__(name: str) -> Any:
    # torch is imported only when the estimator is first used, because `import samekind` must be fast
    if name == "SemiSupervisedClassifier":
        from samekind.estimator import SemiSupervisedClassifier

        return SemiSupervisedClassifier
    if name == "PartialLabelKFold":
        from samekind.model_selection import PartialLabelKFold

        return PartialLabelKFold
    raise AttributeError(f"module 'samekind' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
