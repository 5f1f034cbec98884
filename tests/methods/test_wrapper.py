"""A wrapper that changes nothing does the same as its base, to the last bit."""

from __future__ import annotations

import torch
from tests.training import tiny

from samekind.data.dataset import Dataset
from samekind.defaults import net_for, view_defaults
from samekind.methods.base import Task
from samekind.methods.remixmatch import ReMixMatch
from samekind.methods.wrapper import MethodWrapper
from samekind.training.trainer import train


def test_a_run_of_it_is_the_run_of_its_base() -> None:
    base = tiny.method("mean_teacher")
    alone = train(base, tiny.dataset(), tiny.views(), tiny.plan(None))
    ridden = MethodWrapper(tiny.method("mean_teacher"))
    above = train(ridden, tiny.dataset(), tiny.views(), tiny.plan(None))
    assert above.history == alone.history
    state = ridden.base.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in base.state_dict().items())


def test_it_has_the_views_and_the_refresh_interval_of_its_base() -> None:
    images = torch.randn(8, 1, 8, 8)
    dataset = Dataset(images, torch.tensor([0, 1] + [-1] * 6), 2)
    base = ReMixMatch(net_for((1, 8, 8), 2), Task(2, 2, 8, 10))
    base.refresh_every = 3
    ridden = MethodWrapper(base)
    views = view_defaults(dataset, seed=0).views
    assert ridden.adapt_views(views).keys() == base.adapt_views(views).keys() > views.keys()
    assert (ridden.refresh_every, ridden.images_only) == (3, True)
