"""Extended graph Laplacian: its equations, its derivatives, and its behaviour for almost equal predictions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.losses.laplacian import (
    confidence,
    contrastive,
    extended_laplacian,
    log1mexp,
    margin_hinge,
    similar_laplacian,
    squared_distance,
)

seeds = st.integers(0, 2**16)
betas = st.sampled_from([0.5, 1.5, 3.0])
LENGTHS = (1e-3, 1e-2, 0.1, 0.5, 1.0, math.sqrt(2.0))


def predictions(seed: int, n: int = 6, n_classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Return predictions f_i and f_j on the simplex, and random W."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, n, n_classes, generator=generator, dtype=torch.float64)
    f_i, f_j = torch.softmax(logits, dim=-1)
    return f_i, f_j, torch.rand(n, generator=generator, dtype=torch.float64)


def pair_at_distance(length: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return two predictions of two classes with the given distance; the first requires a gradient."""
    step = length / math.sqrt(2.0)
    f_j = torch.tensor([[0.5 - step / 2, 0.5 + step / 2]], dtype=dtype)
    f_i = torch.tensor([[0.5 + step / 2, 0.5 - step / 2]], dtype=dtype, requires_grad=True)
    return f_i, f_j


def loss_and_gradient(f_i: Tensor, f_j: Tensor, W: float, beta: float, eps: float) -> tuple[float, float]:
    """Return the loss of the pair, and the norm of its gradient with respect to f_i."""
    d2 = squared_distance(f_i, f_j)
    loss = extended_laplacian(d2, torch.full_like(d2, W), beta, eps).sum()
    (gradient,) = torch.autograd.grad(loss, f_i)
    return loss.item(), float(gradient.norm())


# ---------------------------------------------------------------- distance and confidence


def test_opposite_certain_predictions_have_a_squared_distance_of_two() -> None:
    one = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    other = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    assert squared_distance(one, other).tolist() == [2.0, 0.0]


def test_the_distance_is_a_sum_over_classes_not_a_mean() -> None:
    one, other = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.3, 0.6]])
    assert squared_distance(one, other).item() == pytest.approx(0.32)


def test_confidence_is_one_for_equal_answers_and_has_a_floor() -> None:
    assert confidence(torch.tensor([0.0, 0.5, 2.0]), 1.5).tolist() == pytest.approx([1.0, math.exp(-0.75), 0.0498], abs=1e-4)
    assert confidence(torch.tensor(2.0), 3.0).item() == pytest.approx(0.00248, abs=1e-5)


# ---------------------------------------------------------------- ln(1 - exp(-s))


def reference(s: float) -> float:
    """Return ln(1 - exp(-s)), computed with sixty digits."""
    with localcontext() as context:
        context.prec = 60
        return float((1 - (-Decimal(s)).exp()).ln())


@pytest.mark.parametrize("s", [1e-30, 1e-12, 1e-8, 3e-8, 1e-6, 1e-3, 0.1, 0.69, math.log(2.0), 0.7, 1.0, 5.0, 36.0, 100.0])
def test_log1mexp_is_exact_for_tiny_and_for_large_s(s: float) -> None:
    in_double = log1mexp(torch.tensor(s, dtype=torch.float64)).item()
    in_single = log1mexp(torch.tensor(s, dtype=torch.float32)).item()
    assert in_double == pytest.approx(reference(s), rel=1e-14)
    assert in_single == pytest.approx(reference(torch.tensor(s, dtype=torch.float32).item()), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(power=st.floats(-30.0, 2.0))
def test_log1mexp_is_exact_in_between(power: float) -> None:
    s = 10.0**power
    assert log1mexp(torch.tensor(s, dtype=torch.float64)).item() == pytest.approx(reference(s), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_log1mexp_is_one_over_expm1_and_never_nan(dtype: torch.dtype) -> None:
    s = torch.logspace(-30, 1.9, 60, dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(log1mexp(s).sum(), s)
    torch.testing.assert_close(gradient, 1.0 / torch.expm1(s.detach()), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log1mexp_of_zero_and_of_huge_s_is_finite_with_a_finite_gradient(dtype: torch.dtype) -> None:
    s = torch.tensor([0.0, 1e4], dtype=dtype, requires_grad=True)
    value = log1mexp(s)
    (gradient,) = torch.autograd.grad(value.sum(), s)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    assert value[1].item() == 0.0


def test_the_two_branches_of_log1mexp_meet_at_ln_2() -> None:
    at = math.log(2.0)
    s = torch.tensor([at * (1 - 1e-15), at, at * (1 + 1e-15)], dtype=torch.float64)
    torch.testing.assert_close(log1mexp(s), torch.full((3,), -at, dtype=torch.float64), rtol=1e-14, atol=0.0)


# ---------------------------------------------------------------- equations 8 and 9


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_equation_8_and_equation_9_agree(seed: int, beta: float) -> None:
    f_i, f_j, W = predictions(seed)
    d2 = squared_distance(f_i, f_j)
    A = confidence(d2, beta)
    cross_entropy = -W * torch.log(A) - (1 - W) * torch.log(1 - A)
    torch.testing.assert_close(extended_laplacian(d2, W, beta, eps=0.0), cross_entropy)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_a_similarity_of_one_gives_the_ordinary_laplacian(seed: int, beta: float) -> None:
    d2 = squared_distance(*predictions(seed)[:2])
    torch.testing.assert_close(extended_laplacian(d2, torch.ones_like(d2), beta), beta * d2)
    torch.testing.assert_close(similar_laplacian(d2, beta), beta * d2)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_a_similarity_of_zero_gives_only_the_repulsion(seed: int, beta: float) -> None:
    d2 = squared_distance(*predictions(seed)[:2])
    torch.testing.assert_close(extended_laplacian(d2, torch.zeros_like(d2), beta, eps=0.0), -log1mexp(beta * d2))


@pytest.mark.parametrize(("beta", "floor"), [(1.5, 0.0511), (3.0, 0.00248)])
def test_opposite_predictions_still_have_a_small_repulsion(beta: float, floor: float) -> None:
    loss = extended_laplacian(torch.tensor(2.0), torch.tensor(0.0), beta)
    assert loss.item() == pytest.approx(floor, rel=2e-3)


# ---------------------------------------------------------------- derivatives


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_the_gradient_with_respect_to_w_is_the_negative_log_odds_of_a(seed: int, beta: float) -> None:
    f_i, f_j, W = predictions(seed)
    d2 = squared_distance(f_i, f_j)
    W.requires_grad_()
    (gradient,) = torch.autograd.grad(extended_laplacian(d2, W, beta, eps=0.0).sum(), W)
    A = confidence(d2, beta)
    torch.testing.assert_close(gradient, torch.log((1 - A) / A))


@pytest.mark.parametrize(("beta", "turning"), [(1.5, 0.462), (3.0, 0.231)])
def test_w_rises_where_a_is_above_one_half_and_falls_elsewhere(beta: float, turning: float) -> None:
    W = torch.full((2,), 0.5, requires_grad=True)
    d2 = torch.tensor([turning - 0.001, turning + 0.001])
    (gradient,) = torch.autograd.grad(extended_laplacian(d2, W, beta).sum(), W)
    assert gradient[0] < 0 < gradient[1]


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_the_gradient_of_a_prediction_is_along_the_difference(seed: int, beta: float) -> None:
    f_i, f_j, W = predictions(seed)
    f_i.requires_grad_()
    d2 = squared_distance(f_i, f_j)
    (gradient,) = torch.autograd.grad(extended_laplacian(d2, W, beta, eps=0.0).sum(), f_i)
    size = 2 * beta * (W - (1 - W) / torch.expm1(beta * d2.detach()))
    torch.testing.assert_close(gradient, size[:, None] * (f_i.detach() - f_j))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=betas)
def test_the_gradient_is_zero_where_a_equals_w(seed: int, beta: float) -> None:
    f_i, f_j, _ = predictions(seed)
    f_i.requires_grad_()
    d2 = squared_distance(f_i, f_j)
    (gradient,) = torch.autograd.grad(extended_laplacian(d2, confidence(d2.detach(), beta), beta, eps=0.0).sum(), f_i)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0.0, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    f_i, f_j, W = (t.requires_grad_() for t in predictions(0))
    assert torch.autograd.gradcheck(squared_distance, (f_i, f_j))
    assert torch.autograd.gradcheck(lambda a, b: confidence(squared_distance(a, b), 3.0), (f_i, f_j))
    assert torch.autograd.gradcheck(lambda a, b: similar_laplacian(squared_distance(a, b), 3.0), (f_i, f_j))
    assert torch.autograd.gradcheck(lambda a, b, w: extended_laplacian(squared_distance(a, b), w, 3.0), (f_i, f_j, W))
    assert torch.autograd.gradcheck(log1mexp, (torch.tensor([1e-2, 0.5, 0.7, 3.0], dtype=torch.float64, requires_grad=True),))


# ---------------------------------------------------------------- where two answers meet


@pytest.mark.parametrize(
    ("beta", "losses", "gradients"),
    [
        (1.5, (13.4, 8.8, 4.2, 1.16, 0.25, 0.051), (2000, 200, 19.9, 3.30, 0.86, 0.22)),
        (3.0, (12.7, 8.1, 3.5, 0.64, 0.051, 0.0025), (2000, 200, 19.7, 2.69, 0.31, 0.021)),
    ],
)
def test_the_repulsion_has_the_sizes_of_the_facts_sheet(
    beta: float, losses: tuple[float, ...], gradients: tuple[float, ...]
) -> None:
    for length, loss, gradient in zip(LENGTHS, losses, gradients, strict=True):
        found = loss_and_gradient(*pair_at_distance(length), W=0.0, beta=beta, eps=0.0)
        assert found == pytest.approx((loss, gradient), rel=0.025)


@pytest.mark.parametrize("eps", [1e-4, 1e-6, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-20, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3])
def test_loss_and_gradient_stay_finite_as_two_answers_meet(length: float, dtype: torch.dtype, eps: float) -> None:
    f_i = torch.tensor([[length, 0.0]], dtype=dtype, requires_grad=True)
    loss, gradient = loss_and_gradient(f_i, torch.zeros(1, 2, dtype=dtype), W=0.3, beta=3.0, eps=eps)
    assert math.isfinite(loss)
    assert math.isfinite(gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_equal_predictions_that_should_differ_have_a_large_loss_and_no_gradient(dtype: torch.dtype) -> None:
    loss, gradient = loss_and_gradient(*pair_at_distance(0.0, dtype), W=0.0, beta=3.0, eps=1e-6)
    assert loss == pytest.approx(-math.log(1e-6), rel=1e-5)
    assert gradient == 0.0


def test_almost_equal_predictions_are_pushed_apart() -> None:
    f_i, f_j = pair_at_distance(1e-4)
    d2 = squared_distance(f_i, f_j)
    (gradient,) = torch.autograd.grad(extended_laplacian(d2, torch.zeros_like(d2), 3.0).sum(), f_i)
    assert float(((f_i.detach() - f_j) * gradient).sum()) < 0  # descent increases the distance
    assert gradient.norm() > 100


@settings(max_examples=25, deadline=None)
@given(power=st.floats(-8.0, 0.1), W=st.floats(0.0, 1.0), beta=betas, eps=st.sampled_from([1e-6, 1e-4]))
def test_the_repulsion_never_exceeds_its_bound(power: float, W: float, beta: float, eps: float) -> None:
    f_i, f_j = pair_at_distance(10.0**power)
    d2 = squared_distance(f_i, f_j)
    repulsion = extended_laplacian(d2, torch.full_like(d2, W), beta, eps) - W * beta * d2
    (gradient,) = torch.autograd.grad(repulsion.sum(), f_i)
    assert float(gradient.norm()) <= (1 - W) * math.sqrt(beta / eps) * (1 + 1e-6)


def test_the_bound_is_reached_where_the_distance_is_eps() -> None:
    beta, eps = 3.0, 1e-6
    _, gradient = loss_and_gradient(*pair_at_distance(math.sqrt(eps / beta)), W=0.0, beta=beta, eps=eps)
    assert gradient == pytest.approx(1732.0, rel=1e-3)


def test_the_default_eps_is_1e_6() -> None:
    zero = torch.zeros(())
    assert extended_laplacian(zero, zero, 3.0).item() == pytest.approx(-math.log(1e-6), rel=1e-5)


def test_the_margin_hinge_is_zero_beyond_the_margin() -> None:
    d2 = torch.tensor([0.0, 0.25, 4.0, 9.0])
    torch.testing.assert_close(margin_hinge(d2, 2.0), torch.tensor([4.0, 2.25, 0.0, 0.0]))


@pytest.mark.parametrize(("d2", "slope"), [(0.25, -3.0), (0.0, 0.0), (9.0, 0.0)])
def test_the_margin_hinge_has_a_finite_gradient_everywhere(d2: float, slope: float) -> None:
    # d/d(d2) (m - d)^2 = -(m - d)/d, at d = 0.5 and m = 2 that is -3
    x = torch.tensor(d2, requires_grad=True)
    torch.autograd.backward(margin_hinge(x, 2.0))
    assert x.grad is not None and x.grad.item() == pytest.approx(slope)


def test_the_contrastive_loss_by_hand() -> None:
    z_i, z_j = torch.tensor([[3.0, 0.0], [0.6, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.8], [0.0, 4.0]])
    per_pair = contrastive(z_i, z_j, torch.tensor([True, False, False]), margin=1.0, eps=1e-12)
    expected = [25 / 2, (1 - math.sqrt(0.5)) ** 2, 0.0]
    torch.testing.assert_close(per_pair, torch.tensor(expected))


def test_the_contrastive_gradient_of_equal_features_is_finite() -> None:
    z = torch.zeros(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(contrastive(z, torch.zeros(1, 3), torch.tensor([False]), 1.0, 1e-8).sum(), z)
    assert gradient.tolist() == [[0.0, 0.0, 0.0]]
