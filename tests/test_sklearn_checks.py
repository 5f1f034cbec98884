"""scikit-learn's own checks of what an estimator must do."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from samekind import SemiSupervisedClassifier

EXPECTED_TO_FAIL: dict[str, str] = {
    "check_classifiers_classes": "uses -1 as a class; here, as in LabelSpreading, -1 means that a row has no label yet",
}


@pytest.mark.filterwarnings("default")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SemiSupervisedClassifier(epochs=20, random_state=0)], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL
)
def test_scikit_learn_agrees(estimator: SemiSupervisedClassifier, check: object) -> None:
    check(estimator)  # type: ignore[operator]
