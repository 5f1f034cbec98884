"""A net that answers for a while is afterwards in the mode it was in, part by part."""

from __future__ import annotations

from torch import nn

from samekind.nets.modes import answering


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


def test_modes_come_back_even_if_something_breaks() -> None:
    classifier = net().train()
    try:
        with answering(classifier):
            assert not classifier.training
            raise KeyError
    except KeyError:
        assert classifier.training


def test_parts_that_were_in_another_mode_come_back_to_it() -> None:
    classifier = net().train()
    classifier[1].eval()
    with answering(classifier):
        assert not any(part.training for part in classifier)
    assert [part.training for part in classifier] == [True, False, True]
