"""CTAugment: the rates and weights of its bins, the probes that update them, and its place in the strong view."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from samekind.data.augment.ctaugment import (
    BINS,
    CONTROLLED,
    CTAugment,
    draws_from_tensor,
    initial_rates,
    level_bins,
    with_ctaugment,
)
from samekind.data.augment.normalize import per_channel
from samekind.data.augment.ops import OPERATIONS
from samekind.data.augment.randaugment import PAPER, Cutout, Draws, apply_draws, magnitude_ranges
from samekind.data.augment.transforms import Compose, GaussianNoise, NormalizeAfter, RandomShift, Transform, Views, identity
from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError

IMAGES = torch.randint(256, (12, 6, 6, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
NORMALISE = per_channel(IMAGES)


def images(n: int) -> Tensor:
    return torch.randint(256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def augmented(transform: Transform, x: Tensor) -> Tensor:
    return transform(x, torch.arange(len(x)), torch.Generator().manual_seed(0))


def views() -> Views:
    return {"weak": NormalizeAfter(RandomShift(1), NORMALISE), "strong": NormalizeAfter(Compose(PAPER, identity), NORMALISE)}


def labelled_views_of(views: Views, *names: str, seed: int = 0) -> tuple[Tensor, ...]:
    """Return these views of the labelled samples of a first batch."""
    dataset = Dataset(IMAGES, torch.arange(12) % 3, 3)
    sizes = {"n_labelled": 8, "n_unlabelled": 4, "generator": torch.Generator().manual_seed(seed)}
    sampler = BatchSampler(dataset, views, labelled_views=names, unlabelled_views=("weak",), **sizes)  # type: ignore[arg-type]
    return next(sampler).x_l


def test_the_draws_of_a_probe_reproduce_it() -> None:
    own: Views = {**with_ctaugment(views(), CTAugment()), "plain": NormalizeAfter(identity, lambda x: x)}
    stored, drawn, probe = labelled_views_of(own, "plain", "draws", "probe")
    again = apply_draws(stored, draws_from_tensor(drawn), CONTROLLED)
    torch.testing.assert_close(probe, NORMALISE(again))


def test_probes_are_drawn_at_any_level_for_any_rates() -> None:
    augment = CTAugment()
    augment.rates.fill_(0.0)
    augment.rates[:, 0] = 1.0
    (drawn,) = labelled_views_of(with_ctaugment(views(), augment), "draws")
    assert level_bins(draws_from_tensor(drawn)).max() > 0


def test_the_strong_view_uses_only_levels_with_high_current_rates() -> None:
    """Leave only the first bin of Brightness: the light falls to between a tenth and a fifth."""
    augment, images = CTAugment(depth=1), torch.full((200, 1, 6, 6), 100, dtype=torch.uint8)
    strong = with_ctaugment({"strong": PAPER}, augment)["strong"]
    augment.rates[OPERATIONS.index("Brightness"), 1:] = 0.0  # after the views were made
    levels = strong(images, torch.arange(200), torch.Generator().manual_seed(0)).flatten(1)
    draws = augment.draw(200, augment.weights(), torch.Generator().manual_seed(0))
    darkened = levels[torch.from_numpy(draws.operation[:, 0] == OPERATIONS.index("Brightness"))]
    assert len(darkened) > 5
    assert darkened.max() <= 100 * (0.1 + 1.9 / 17)


def test_only_randaugment_is_replaced_in_the_strong_view() -> None:
    own = with_ctaugment(
        {"strong": Compose(NormalizeAfter(Compose(PAPER, RandomShift(1)), NORMALISE), GaussianNoise(0.5))},
        augment := CTAugment(),
    )
    assert own["strong"] == Compose(NormalizeAfter(Compose(augment, RandomShift(1)), NORMALISE), GaussianNoise(0.5))


def test_other_views_are_unchanged() -> None:
    given = views()
    own = with_ctaugment(given, CTAugment())
    assert own["weak"] is given["weak"]
    assert set(own) == {"weak", "strong", "draws", "probe"}
    assert "probe" not in given


def test_a_strong_view_without_randaugment_is_refused() -> None:
    with pytest.raises(SettingError, match="strong view is GaussianNoise and contains no RandAugment"):
        with_ctaugment({"strong": GaussianNoise(0.1)}, CTAugment())


def test_views_without_a_strong_one_are_refused() -> None:
    with pytest.raises(SettingError, match="there are only labelled_only, weak"):
        with_ctaugment({"labelled_only": identity, "weak": identity}, CTAugment())


# ---------------------------------------------------------------- rates and weights


def test_every_bin_can_be_drawn_at_the_start() -> None:
    weights = CTAugment().weights()
    assert torch.equal(weights, initial_rates())
    assert weights.sum(1).tolist() == [8.0 if name == "Posterize" else 17.0 for name in OPERATIONS]


def test_bins_far_below_the_best_of_their_operation_are_not_drawn() -> None:
    control = CTAugment()
    control.rates[3, :4] = torch.tensor([0.79, 0.80, 0.81, 0.5]).double()
    weights = control.weights()[3]
    assert weights[0] == 0.0 and weights[3] == 0.0  # (0.79 + 0.01)/1.01 is 0.792
    assert weights[1].item() == pytest.approx(0.81 / 1.01)
    assert weights[4] == 1.0
    drawn = control.draw(3000, control.weights(), torch.Generator().manual_seed(0))
    bins = level_bins(drawn)[drawn.operation == 3]
    assert set(bins.tolist()) == {1, 2, *range(4, 17)}


def test_an_operation_with_zero_rates_keeps_all_its_bins() -> None:
    control = CTAugment(rates=torch.zeros(len(OPERATIONS), BINS))
    assert torch.equal(control.weights(), initial_rates())
    assert augmented(control, images(20)).shape == (20, 3, 32, 32)


def test_a_probe_updates_the_rates_of_its_bins_in_turn() -> None:
    control = CTAugment()
    draws = Draws(np.array([[4, 4], [4, 9]]), np.array([[0.01, 0.99], [0.02, 0.5]]), np.ones((2, 2)))
    control.update(draws, torch.tensor([0.0, 0.5]))
    expected = initial_rates()
    expected[4, 0] = 0.99 * 0.99 + 0.01 * 0.5  # two probes in the same bin
    expected[4, 16] = 0.99
    expected[9, 8] = 0.995
    torch.testing.assert_close(control.rates, expected)


def test_a_probe_updates_the_bins_it_was_drawn_from() -> None:
    control = CTAugment(decay=0.0)
    _, draws = control.probe(images(400), torch.Generator().manual_seed(0))
    control.update(draws, torch.full((400,), 0.25))
    tried = control.rates == 0.25
    assert tried.sum() > 200  # of 229
    assert (initial_rates()[tried] == 1.0).all()


def test_probes_use_every_bin_and_images_only_bins_with_high_rates() -> None:
    control = CTAugment()
    control.rates[:, 1:] = 0.0
    probed, draws = control.probe(images(500), torch.Generator().manual_seed(0))
    assert probed.shape == (500, 3, 32, 32)
    assert draws.level.max() > 0.95
    assert control.draw(500, control.weights(), torch.Generator().manual_seed(0)).level.max() < 1 / 8


def test_rates_are_updated_in_place() -> None:
    kept = initial_rates().float()
    control = CTAugment(rates=kept)
    _, draws = control.probe(images(5), torch.Generator().manual_seed(0))
    control.update(draws, torch.zeros(5))
    assert 0.0 < (kept == 0.99).sum() <= 10


def test_the_match_of_a_prediction_and_a_label_is_the_probability_of_the_true_class() -> None:
    p, y = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.0, 1.0, 0.0])
    assert (1 - 0.5 * (p - y).abs().sum()).item() == pytest.approx(0.5)


def test_cutout_can_follow_ctaugment() -> None:
    still = magnitude_ranges()
    out = augmented(CTAugment(ranges=still, cutout=Cutout(fill=0)), torch.full((20, 1, 8, 8), 255, dtype=torch.uint8))
    assert ((out == 0).flatten(1).sum(1) > 0).all()
