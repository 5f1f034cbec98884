"""What a search asks of a similarity: for every pair a margin, the log-odds of "same kind", which orders where W is full.

    W = sigmoid(margin): in float32 every margin above 17 is W = 1, and the order among the most alike would be lost.

The first layer of Phi acts on a concatenation, V [z_i; z_j] = V_left z_i + V_right z_j, so each row brings a half that is
made once. All pairs then go through tiles of one size, in buffers that stay in the cache of the processor. The last tile is
filled up, so that every product of matrices has the same shape: what comes out for a pair does not depend on which pairs
were asked for together with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

NUMBERS = 2**18  # in a tile: pairs times the width of Phi
ROWS = 2048  # rows whose side is made at a time
PLAIN_PAIRS = 2**17  # pairs in the air where a similarity does not split
LogSimilarity = Callable[[Tensor, Tensor], Tensor]  # (n_a, d), (n_b, d) -> ln W (n_a, n_b)
Layer = tuple[Tensor, Tensor]  # weight (out, in), bias (out,)


class Score(Protocol):
    """Margins of pairs, from what each row brings as the first and as the second of a pair.

    `grid` and `each` take halves of opposite sides in either order: (left, right) is W_ij, (right, left) is W_ji.
    """

    def left(self, z: Tensor) -> Tensor:
        """(n, h) from features z (n, d)."""

    def right(self, z: Tensor) -> Tensor:
        """(n, h) from features z (n, d)."""

    def grid(self, own: Tensor, others: Tensor) -> Tensor:
        """(n_a, n_b): the margin of every row of `own` with every row of `others`."""

    def each(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """(n_a, c): the margin of own[i] with others[chosen[i, j]]."""


def between(there: Tensor, back: Tensor) -> Tensor:
    """The margin of (W_ij + W_ji) / 2 from those of W_ij and W_ji, also where both are full or empty.

    ln (s(a) + s(b)) - ln (s(-a) + s(-b)), s the sigmoid.
    """
    same = torch.logaddexp(F.logsigmoid(there), F.logsigmoid(back))
    return same - torch.logaddexp(F.logsigmoid(-there), F.logsigmoid(-back))


class PhiScore:
    """Phi by its layers, the first of which splits in the middle of its inputs."""

    def __init__(self, layers: Sequence[Layer], *, slope: float, log_odds: float = 0.0) -> None:
        (first, self._bias), *hidden, (last, last_bias) = [(w.detach(), b.detach()) for w, b in layers]
        self._left, self._right = (half.T for half in first.chunk(2, dim=1))
        self._hidden = [(weight.T, bias) for weight, bias in hidden]
        # only the difference of the two logits counts
        self._last, self._shift = (last[0] - last[1])[:, None], float(last_bias[0] - last_bias[1]) - log_odds
        self.slope = slope
        self.widths = [len(self._bias), *(len(bias) for _, bias in hidden)]
        self.tile = 1 << max(6, int(math.log2(NUMBERS // max(self.widths))))

    def left(self, z: Tensor) -> Tensor:
        return self._half(z, self._left).add_(self._bias)

    def right(self, z: Tensor) -> Tensor:
        return self._half(z, self._right)

    def _half(self, z: Tensor, weight: Tensor) -> Tensor:
        half = z.new_empty((len(z), weight.shape[1]))
        rows, out = z.new_zeros((self.tile, z.shape[1])), z.new_empty((self.tile, weight.shape[1]))
        for start in range(0, len(z), self.tile):
            n = len(half[start : start + self.tile])
            rows[:n] = z[start : start + n]
            half[start : start + n] = torch.mm(rows, weight, out=out)[:n]
        return half

    @torch.inference_mode()
    def grid(self, own: Tensor, others: Tensor) -> Tensor:
        tall, wide = self._shape(len(others))
        margins, buffers = own.new_empty((len(own), len(others))), self._buffers(own)
        sums = buffers[0].view(tall, wide, -1)
        for top in range(0, len(own), tall):
            some = own[top : top + tall, None]
            for start in range(0, len(others), wide):
                those = others[None, start : start + wide]
                n, m = len(some), those.shape[1]
                torch.add(some, those, out=sums[:n, :m])
                margins[top : top + n, start : start + m] = self._through(buffers).view(tall, wide)[:n, :m]
        return margins

    @torch.inference_mode()
    def each(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        tall, wide = self._shape(chosen.shape[1])
        margins, buffers = own.new_empty(chosen.shape), self._buffers(own)
        sums, where = buffers[0].view(tall, wide, -1), chosen.new_zeros((tall, wide))
        for top in range(0, len(own), tall):
            some = own[top : top + tall, None]
            for start in range(0, chosen.shape[1], wide):
                those = chosen[top : top + tall, start : start + wide]
                n, m = those.shape
                where[:n, :m] = those
                torch.index_select(others, 0, where.flatten(), out=buffers[0])
                sums[:n].add_(some)
                margins[top : top + n, start : start + m] = self._through(buffers).view(tall, wide)[:n, :m]
        return margins

    @torch.inference_mode()
    def planes(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """(n_a, h + 1): the plane behind the first layer that is nearest to Phi at the pairs of own[i] and others[chosen[i]].

        Slopes are the mean of those at the pairs; the last number is the height at 0.
        """
        first = F.leaky_relu_(own[:, None] + others[chosen], self.slope).flatten(0, 1)
        before, hidden = [], first
        for weight, bias in self._hidden:
            before.append(torch.addmm(bias, hidden, weight))
            hidden = F.leaky_relu(before[-1], self.slope)
        slopes = self._last.T.expand(len(hidden), -1)
        for (weight, _), signs in zip(reversed(self._hidden), reversed(before), strict=True):
            slopes = torch.where(signs > 0, slopes, self.slope * slopes) @ weight.T
        slopes = slopes.reshape(*chosen.shape, -1).mean(1)
        margins = (hidden @ self._last + self._shift).view(chosen.shape).mean(1)
        flat = (first.view(*chosen.shape, -1).mean(1) * slopes).sum(1)
        return torch.cat([slopes, (margins - flat)[:, None]], dim=1)

    @torch.inference_mode()
    def on_planes(self, own: Tensor, planes: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """(n_a, c): the margins of own[i] with others[chosen[i, j]] by the plane of i."""
        guessed, buffer = own.new_empty(chosen.shape), own.new_empty((self.tile, own.shape[1]))
        for i, some in enumerate(chosen):
            for start in range(0, len(some), self.tile):
                those = some[start : start + self.tile]
                sums = torch.index_select(others, 0, those, out=buffer[: len(those)]).add_(own[i])
                torch.mv(F.leaky_relu_(sums, self.slope), planes[i, :-1], out=guessed[i, start : start + len(those)])
        return guessed.add_(planes[:, -1:])

    def _shape(self, n_columns: int) -> tuple[int, int]:
        """Rows and columns of a tile: as wide as there are columns, up to the whole tile."""
        wide = min(self.tile, 1 << max(0, n_columns - 1).bit_length())
        return self.tile // wide, wide

    def _buffers(self, like: Tensor) -> list[Tensor]:
        return [like.new_zeros((self.tile, width)) for width in (*self.widths, 1)]

    def _through(self, buffers: list[Tensor]) -> Tensor:
        """(tile,): what Phi says of the sums that lie in the first buffer; nothing is allocated."""
        for (weight, bias), before, after in zip(self._hidden, buffers[:-1], buffers[1:], strict=False):
            torch.addmm(bias, F.leaky_relu_(before, self.slope), weight, out=after)
        *_, before, after = buffers
        return torch.mm(F.leaky_relu_(before, self.slope), self._last, out=after).add_(self._shift)[:, 0]


class KernelScore:
    """A similarity that does not split: `side` is what a row brings to its pairs, `log_similarity` is ln W of two blocks."""

    def __init__(self, log_similarity: LogSimilarity, side: Callable[[Tensor], Tensor] = lambda z: z) -> None:
        self._log_similarity = log_similarity
        self._side = side

    @torch.inference_mode()
    def left(self, z: Tensor) -> Tensor:
        sides = [self._side(some) for some in torch.split(z, ROWS)]
        return torch.cat(sides) if sides else self._side(z)

    def right(self, z: Tensor) -> Tensor:
        return self.left(z)

    @torch.inference_mode()
    def grid(self, own: Tensor, others: Tensor) -> Tensor:
        margins = own.new_empty((len(own), len(others)))
        tall = max(1, PLAIN_PAIRS // max(1, len(others)))
        for top in range(0, len(own), tall):
            margins[top : top + tall] = self._log_similarity(own[top : top + tall], others)
        return _from_log(margins)

    @torch.inference_mode()
    def each(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        margins = own.new_empty(chosen.shape)
        for i, those in enumerate(chosen):
            margins[i] = self._log_similarity(own[i : i + 1], others[those])
        return _from_log(margins)


def _from_log(log_W: Tensor) -> Tensor:
    """ln (W / (1 - W)) from ln W; infinite where W is 1."""
    return log_W - torch.log(-torch.expm1(log_W))


def make_pair_score(predictor: Any) -> Score:
    """The score of what is left of a training: by Phi where it has one, else by its own `side` and `log_similarity`."""
    phi = getattr(predictor, "similarity_net", None)
    if phi is None:
        return KernelScore(predictor.log_similarity, predictor.side)
    return PhiScore([(layer.weight, layer.bias) for layer in phi.layers], slope=phi.slope, log_odds=predictor.log_odds)
