"""Probes: what was done to an image travels beside it, and CTAugment takes RandAugment's place wherever that stands."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from samekind.data.augment.ctaugment import controlled, draws_from_tensor
from samekind.data.augment.normalize import per_channel
from samekind.data.augment.ops import OPERATIONS
from samekind.data.augment.randaugment import CONTROLLED, PAPER, CTAugment, applied, bins_of
from samekind.data.augment.transforms import Compose, GaussianNoise, NormalizeAfter, RandomShift, Views, identity
from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError

IMAGES = torch.randint(256, (12, 6, 6, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
NORMALISE = per_channel(IMAGES)


def views() -> Views:
    return {"weak": NormalizeAfter(RandomShift(1), NORMALISE), "strong": NormalizeAfter(Compose(PAPER, identity), NORMALISE)}


def seen(views: Views, *names: str, seed: int = 0) -> tuple[Tensor, ...]:
    """The labelled rows of a first batch, and below them what they are in the pool."""
    pool = Dataset(IMAGES, torch.arange(12) % 3, 3)
    sizes = {"n_labelled": 8, "n_unlabelled": 4, "generator": torch.Generator().manual_seed(seed)}
    stream = BatchSampler(pool, views, labelled_views=names, unlabelled_views=("weak",), **sizes)  # type: ignore[arg-type]
    return next(stream).x_l


def test_the_draws_beside_a_probe_are_those_that_made_it() -> None:
    own: Views = {**controlled(views(), CTAugment()), "plain": NormalizeAfter(identity, lambda x: x)}
    stored, drawn, probe = seen(own, "plain", "draws", "probe")
    again = applied(stored, draws_from_tensor(drawn), CONTROLLED)
    torch.testing.assert_close(probe, NORMALISE(again))


def test_probes_are_drawn_at_any_level_whatever_the_rates_say() -> None:
    augment = CTAugment()
    augment.rates.fill_(0.0)
    augment.rates[:, 0] = 1.0
    (drawn,) = seen(controlled(views(), augment), "draws")
    assert bins_of(draws_from_tensor(drawn)).max() > 0


def test_a_strong_view_keeps_to_the_levels_whose_rates_are_good_now() -> None:
    """Only the first bin of Brightness is left, and nothing else is drawn: a tenth to a fifth of the light."""
    augment, images = CTAugment(depth=1), torch.full((200, 1, 6, 6), 100, dtype=torch.uint8)
    strong = controlled({"strong": PAPER}, augment)["strong"]
    augment.rates[OPERATIONS.index("Brightness"), 1:] = 0.0  # after the views were made
    levels = strong(images, torch.arange(200), torch.Generator().manual_seed(0)).flatten(1)
    draws = augment.draw(200, augment.weights(), torch.Generator().manual_seed(0))
    darkened = levels[torch.from_numpy(draws.operation[:, 0] == OPERATIONS.index("Brightness"))]
    assert len(darkened) > 5
    assert darkened.max() <= 100 * (0.1 + 1.9 / 17)


def test_the_rest_of_the_strong_view_stays_around_it() -> None:
    own = controlled(
        {"strong": Compose(NormalizeAfter(Compose(PAPER, RandomShift(1)), NORMALISE), GaussianNoise(0.5))},
        augment := CTAugment(),
    )
    assert own["strong"] == Compose(NormalizeAfter(Compose(augment, RandomShift(1)), NORMALISE), GaussianNoise(0.5))


def test_other_views_are_left_alone() -> None:
    given = views()
    own = controlled(given, CTAugment())
    assert own["weak"] is given["weak"]
    assert set(own) == {"weak", "strong", "draws", "probe"}
    assert "probe" not in given


def test_a_strong_view_without_randaugment_is_refused() -> None:
    with pytest.raises(SettingError, match="strong view is GaussianNoise, in which there is no RandAugment"):
        controlled({"strong": GaussianNoise(0.1)}, CTAugment())


def test_views_without_a_strong_one_are_refused() -> None:
    with pytest.raises(SettingError, match="there are only labelled_only, weak"):
        controlled({"labelled_only": identity, "weak": identity}, CTAugment())
