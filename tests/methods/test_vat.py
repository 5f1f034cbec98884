"""VAT: the adversarial direction by hand, and what the extra passes must not change."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.vat import SPEC, VAT, VATConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return three undecided unlabelled samples, and two labelled ones at (3/4, 1/4)."""
    x_u = torch.zeros(3, 2)
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_u,), torch.arange(3))


def terms(task: Task = TASK, seen: Batch | None = None, **settings: float) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return VAT(linear(), task, VATConfig(**settings)).losses(seen or batch(), progress=0.0)  # type: ignore[arg-type]


def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    assert terms()["supervised"].item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_the_worst_direction_is_straight_across_the_border() -> None:
    # Logits are the sample: at 0 the border runs along (1, 1), so r = ± eps (1, -1)/sqrt 2 and the logits differ by eps sqrt 2.
    # With eps = ln 3/sqrt 2 the prediction (1/2, 1/2) becomes (3/4, 1/4) or (1/4, 3/4): KL = ln(1/2) - (ln(3/4) + ln(1/4))/2.
    loss = terms(eps=LN3 / math.sqrt(2), xi=0.01)["adversarial"]
    assert loss.item() == pytest.approx(math.log(0.5) - 0.5 * math.log(3 / 16), rel=1e-4)


def test_in_single_precision_a_step_below_rounding_finds_no_direction() -> None:
    # The step of the authors' code, 1e-6, falls below the last digit of x; that of the defaults does not
    torch.manual_seed(0)
    net, x = Classifier(nn.Flatten(), 3072, 2), torch.randn(4, 3, 32, 32)
    clean, d = net(x).logits.detach(), torch.randn_like(x)
    border = (net.head.get_parameter("weight")[0] - net.head.get_parameter("weight")[1]).detach()
    for xi, found in ((1e-6, False), (SPEC.defaults["xi"], True)):
        r = VAT(net, TASK, VATConfig(eps=1.0, xi=xi))._adversarial_perturbation(x, clean, d, torch.get_rng_state()).flatten(1)
        across = (r @ border).abs() / border.norm()
        assert ((across > 0.99) == found).all()


def test_no_other_direction_of_that_length_is_worse() -> None:
    seen = Batch(batch().x_l, batch().y_l, (torch.tensor([[0.5, 0.1]]),), torch.arange(1))
    found = terms(seen=seen, eps=0.05, xi=0.1)["adversarial"].item()
    log_p = torch.log_softmax(seen.x_u[0], dim=-1)
    angles = torch.linspace(0, 2 * math.pi, 721)
    moved = torch.log_softmax(seen.x_u[0] + 0.05 * torch.stack([angles.cos(), angles.sin()], dim=1), dim=-1)
    every = (log_p.exp() * (log_p - moved)).sum(1)
    assert found == pytest.approx(every.max().item(), rel=0.05)  # the two ends of one line differ a little
    assert every.median().item() < 0.7 * found


@pytest.mark.parametrize(("shape", "eps"), [((3, 32, 32), 8.0), ((1, 8, 6), 1.0), ((12,), 0.5)])
def test_the_norm_grows_with_the_root_of_the_input_size(shape: tuple[int, ...], eps: float) -> None:
    net = Classifier(nn.Flatten(), math.prod(shape), 2)
    method, x = VAT(net, TASK, VATConfig(xi=0.1)), torch.zeros(2, *shape)
    r = method._adversarial_perturbation(x, net(x).logits.detach(), torch.randn(2, *shape), torch.get_rng_state())
    torch.testing.assert_close(r.flatten(1).norm(dim=1), torch.tensor([eps, eps]), rtol=1e-2, atol=0.0)


def test_the_entropy_term_is_there_only_if_set() -> None:
    assert set(terms()) == {"supervised", "adversarial"}
    assert terms(entropy_weight=0.5)["entropy"].item() == pytest.approx(0.5 * math.log(2))


def test_the_adversarial_term_moves_the_student_through_the_changed_sample_alone() -> None:
    # KL(p || q) by the logits of q is q - p; were p moved too, its own gradient would be added
    torch.manual_seed(0)
    method = VAT(linear(), TASK, VATConfig(eps=LN3 / math.sqrt(2), xi=0.01))
    torch.autograd.backward(method.losses(batch(), progress=0.0)["adversarial"])
    grad = method.student.head.get_parameter("weight").grad
    assert grad is not None
    # each sample: (q - p) r^T with q - p = ± (1, -1)/4 and r = ± ln 3/2 (1, -1), whatever the sign
    torch.testing.assert_close(grad, LN3 / 8 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), rtol=1e-3, atol=0.0)


def test_the_search_for_the_direction_leaves_no_gradient_behind() -> None:
    method, seen = VAT(linear(), TASK), batch()
    x = seen.x_u[0].requires_grad_()
    method.losses(seen, progress=0.0)
    assert method.student.head.get_parameter("weight").grad is None
    assert x.grad is None


def test_only_labelled_samples_move_batch_norm_statistics() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    seen = batch()
    VAT(net, TASK, VATConfig(power_iterations=3)).losses(seen, progress=0.0)
    torch.testing.assert_close(net.features.running_mean, 0.1 * seen.x_l[0].mean(0))
    assert net.features.num_batches_tracked is not None and net.features.num_batches_tracked.item() == 1


def masks_of(method: VAT) -> list[Tensor]:
    """Return the dropout masks of each pass of a step, labelled samples first."""
    seen: list[Tensor] = []
    drop = nn.Dropout(0.5)
    drop.register_forward_hook(lambda _, given, out: seen.append(out.detach() != 0))
    method.student.features = nn.Sequential(nn.Linear(2, 40), drop, nn.Linear(40, 2))
    x = torch.ones(4, 2)
    method.train().losses(Batch((x,), torch.tensor([0, 1, 0, 1]), (x,), torch.arange(4)), progress=0.0)
    return seen


def test_all_passes_over_the_dataset_draw_the_same_dropout_and_labelled_samples_their_own() -> None:
    labelled, clean, search, changed = masks_of(VAT(linear(), TASK))
    assert torch.equal(clean, search) and torch.equal(clean, changed)
    assert not torch.equal(labelled, clean)
    _, clean, search, changed = masks_of(VAT(linear(), TASK, VATConfig(same_dropout=False)))
    assert not torch.equal(clean, search) and not torch.equal(search, changed)


def test_the_random_state_advances_after_a_step() -> None:
    method, seen = VAT(linear(), TASK), batch()
    directions = []
    for _ in range(2):
        method.losses(seen, progress=0.0)
        directions.append(torch.rand(3))
    assert not torch.equal(*directions)


def test_an_unlabelled_weight_of_zero_removes_the_unlabelled_terms() -> None:
    found = terms(Task(2, 2, 100, steps=100, unlabelled_weight=0.0), entropy_weight=1.0)
    assert found["adversarial"].item() == found["entropy"].item() == 0.0


@pytest.mark.parametrize("name", ["xi", "power_iterations"])
def test_a_search_that_goes_nowhere_is_refused(name: str) -> None:
    expected = "a number above 0" if name == "xi" else "a whole number, 1 or more"
    with pytest.raises(SettingError, match=f"{name} is 0; expected {expected}"):
        VATConfig(**{name: 0})  # type: ignore[arg-type]
