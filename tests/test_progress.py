"""Progress bars: one for each operation and size."""

from __future__ import annotations

import pytest

from samekind.progress import progress_bars


def test_the_same_operation_on_more_items_gets_its_own_total(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as show:
        show("decoding images", 1, 1)
        show("decoding images", 747, 747)
    shown = capsys.readouterr().err
    assert "747/747" in shown
    assert "747/1 " not in shown
