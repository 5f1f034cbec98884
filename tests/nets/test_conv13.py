"""CNN-13: the published sizes, both normalisations, copying and saving."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from samekind.errors import DataError, SettingError
from samekind.nets.classifier import Classifier
from samekind.nets.conv13 import Conv13, MeanOnlyNorm, Variant, WeightNormUnit, conv13_classifier, data_dependent_init

BOTH: tuple[Variant, ...] = ("A", "B")


def trainable(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def thin(variant: Variant, *, noise: float = 0.0, dropout: float = 0.0) -> Classifier:
    torch.manual_seed(0)
    return conv13_classifier(10, Conv13(variant=variant, width=1 / 16, noise=noise, dropout=dropout))


def images(n: int = 4, side: int = 16) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def before_norm(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output of every weight-normed layer of variant A for x, before the mean is subtracted."""
    seen: list[Tensor] = []
    hooks = [
        unit.layer.register_forward_hook(lambda _layer, _inputs, output: seen.append(output.detach()))
        for unit in net.modules()
        if isinstance(unit, WeightNormUnit)
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return seen


def head_weight(classifier: Classifier) -> tuple[Tensor, Tensor]:
    """Return g and v of the head of variant A."""
    weight = "head.layer.parametrizations.weight"
    return classifier.get_parameter(f"{weight}.original0"), classifier.get_parameter(f"{weight}.original1")


@pytest.mark.parametrize(("variant", "expected"), [("A", 3_121_812), ("B", 3_125_908)])
def test_it_has_the_published_number_of_parameters(variant: Variant, expected: int) -> None:
    assert trainable(conv13_classifier(10, Conv13(variant=variant))) == expected


@pytest.mark.parametrize(
    ("width", "expected"), [(1.0, 3_123_850), (1 / 2, 783_690), (1 / 4, 197_290), (1 / 8, 50_010), (1 / 16, 12_850)]
)
def test_narrow_nets_without_weight_norm_have_the_expected_number_of_parameters(width: float, expected: int) -> None:
    assert trainable(conv13_classifier(10, Conv13(width=width, weight_norm=False))) == expected


@pytest.mark.parametrize(("n_classes", "expected"), [(10, 731_383_040), (100, 731_394_560)])
def test_one_image_costs_the_published_number_of_multiplications(n_classes: int, expected: int) -> None:
    classifier = conv13_classifier(n_classes).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        classifier(torch.zeros(1, 3, 32, 32))
    assert counter.get_total_flops() == 2 * expected


@pytest.mark.parametrize(("width", "millions"), [(1 / 2, 183.7), (1 / 4, 46.4), (1 / 8, 11.8), (1 / 16, 3.06)])
def test_both_variants_cost_the_same_at_every_width(width: float, millions: float) -> None:
    for variant in BOTH:
        classifier = conv13_classifier(10, Conv13(variant=variant, width=width)).eval()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            classifier(torch.zeros(1, 3, 32, 32))
        assert counter.get_total_flops() / 2e6 == pytest.approx(millions, rel=3e-3)


@pytest.mark.parametrize("variant", BOTH)
def test_z_has_128_features_times_the_width_and_the_head_reads_them(variant: Variant) -> None:
    classifier = thin(variant).eval()
    z, logits = classifier(images())
    assert z.shape == (4, 8)
    assert (classifier.n_features, classifier.n_classes) == (8, 10)
    assert torch.equal(classifier.head(z), logits)


@pytest.mark.parametrize("variant", BOTH)
def test_a_deep_copy_predicts_the_same_and_shares_no_memory(variant: Variant) -> None:
    classifier = thin(variant).eval()
    twin, x = copy.deepcopy(classifier), images()
    before = classifier(x).logits
    assert torch.equal(twin(x).logits, before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(classifier(x).logits, before)


@pytest.mark.parametrize("variant", BOTH)
def test_a_saved_state_gives_an_identical_net(variant: Variant) -> None:
    saved, other = thin(variant), conv13_classifier(10, Conv13(variant=variant, width=1 / 16))
    saved(images())  # so that the running statistics differ from the initial ones
    other.load_state_dict(saved.state_dict())
    assert torch.equal(other.eval()(images()).logits, saved.eval()(images()).logits)


@pytest.mark.parametrize("variant", BOTH)
def test_every_parameter_receives_a_gradient(variant: Variant) -> None:
    classifier = thin(variant, noise=0.15, dropout=0.5)
    classifier(images()).logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in classifier.parameters())


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize(("noise", "dropout"), [(0.15, 0.0), (0.0, 0.5)])
def test_noise_and_dropout_act_in_train_mode_only(variant: Variant, noise: float, dropout: float) -> None:
    classifier, x = thin(variant, noise=noise, dropout=dropout), images()
    assert not torch.equal(classifier(x).logits, classifier(x).logits)
    classifier.eval()
    assert torch.equal(classifier(x).logits, classifier(x).logits)


@pytest.mark.parametrize("variant", BOTH)
def test_without_noise_and_dropout_a_training_pass_is_repeatable(variant: Variant) -> None:
    classifier, x = thin(variant), images()
    assert torch.equal(classifier(x).logits, classifier(x).logits)


def test_data_dependent_init_gives_every_channel_unit_std() -> None:
    classifier, x = thin("A"), images(8)
    data_dependent_init(classifier, x)
    outputs = before_norm(classifier, x)
    assert len(outputs) == 10
    for output in outputs:
        std = output.transpose(0, 1).flatten(1).std(dim=1, correction=0)
        torch.testing.assert_close(std, torch.ones_like(std), rtol=1e-3, atol=1e-3)


def test_after_data_dependent_init_train_and_eval_agree_on_that_batch() -> None:
    classifier, x = thin("A"), images(8)
    data_dependent_init(classifier, x)
    in_training = classifier(x).logits
    torch.testing.assert_close(classifier.eval()(x).logits, in_training, rtol=1e-3, atol=1e-3)


def test_data_dependent_init_changes_g_and_keeps_v() -> None:
    classifier = thin("A")
    g, v = head_weight(classifier)
    g_before, v_before = g.detach().clone(), v.detach().clone()
    data_dependent_init(classifier, images())
    assert torch.equal(v, v_before)
    assert not torch.isclose(g, g_before).any()


def test_a_channel_that_is_constant_over_the_batch_keeps_its_g() -> None:
    classifier = thin("A")
    g, _ = head_weight(classifier)
    before = g.detach().clone()
    data_dependent_init(classifier, images(1))  # one image: no logit varies
    assert torch.equal(g, before)


def test_data_dependent_init_of_variant_b_is_refused() -> None:
    with pytest.raises(SettingError, match="Only variant 'A' needs this function"):
        data_dependent_init(thin("B"), images())


def test_the_logits_of_variant_a_have_mean_zero_over_a_training_batch() -> None:
    logits = thin("A")(images(8)).logits
    torch.testing.assert_close(logits.mean(dim=0), torch.zeros(10), rtol=0, atol=1e-5)


def test_mean_only_norm_subtracts_the_mean_and_keeps_the_scale() -> None:
    norm = MeanOnlyNorm(2)
    norm.bias.data = torch.tensor([0.0, 5.0])
    out = norm(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    assert out.tolist() == [[-1.0, -5.0], [1.0, 15.0]]


def test_the_running_mean_has_a_decay_of_0_999() -> None:
    norm = MeanOnlyNorm(1)
    norm.running_mean.fill_(2.0)
    norm(torch.full((4, 1, 3, 3), 7.0))
    assert norm.running_mean.item() == pytest.approx(0.999 * 2.0 + 0.001 * 7.0)


def test_eval_mode_uses_the_running_mean_without_updating_it() -> None:
    norm = MeanOnlyNorm(1).eval()
    norm.running_mean.fill_(2.0)
    assert norm(torch.full((1, 1, 1, 1), 7.0)).item() == 5.0
    assert norm.running_mean.item() == 2.0


def test_images_too_small_for_two_pooling_layers_are_refused_with_a_hint() -> None:
    with pytest.raises(DataError, match=r"8x8 pixels; it needs 12x12.*small_conv"):
        Conv13(width=1 / 16)(torch.zeros(1, 3, 8, 8))
    assert Conv13(width=1 / 16).eval()(torch.zeros(1, 3, 12, 12)).shape == (1, 8)


def test_settings_that_contradict_the_architecture_are_refused() -> None:
    with pytest.raises(SettingError, match="no variant 'C'; known: A, B"):
        Conv13(variant="C")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="variant='B'"):
        Conv13(variant="A", weight_norm=False)
    with pytest.raises(SettingError, match="leaves none of 128"):
        Conv13(width=0.001)
