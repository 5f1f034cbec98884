"""Scores of pairs: the log-odds of "same class", by the similarity network (Phi) or by another similarity.

Scores are log-odds and not probabilities. In float32, W = sigmoid(log-odds) is 1 for all log-odds above 17, so the order of the
most similar pairs would be lost.

The first layer of Phi is linear on the concatenated features of a pair, V [z_i; z_j] = V_left z_i + V_right z_j. So each sample
has a left half V_left z and a right half V_right z, which are computed once. The pairs pass through the other layers in tiles,
in buffers that fit into the CPU cache. All tiles have the same size, the last one is filled up: then every matrix product has
the same shape, and the result of a pair does not depend on the other pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

TILE_SIZE = 2**18  # numbers in a tile: the number of pairs times the width of the widest layer
CHUNK = 2048  # number of samples whose halves are computed at a time
MAX_KERNEL_PAIRS = 2**17  # number of pairs computed at a time by a similarity other than Phi
LogSimilarity = Callable[[Tensor, Tensor], Tensor]  # from features (n_a, d) and (n_b, d) to ln W (n_a, n_b)
Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


class PairScore(Protocol):
    """Interface of scores: log-odds of pairs, computed from a left and a right half of each sample.

    `matrix` and `selected` need halves of opposite sides: (left, right) gives W_ij, and (right, left) gives W_ji.
    """

    def left(self, z: Tensor) -> Tensor:
        """Return the halves (n, h) of samples with features z (n, d) as the left of a pair."""

    def right(self, z: Tensor) -> Tensor:
        """Return the halves (n, h) of samples with features z (n, d) as the right of a pair."""

    def matrix(self, own: Tensor, others: Tensor) -> Tensor:
        """Return the log-odds (n_a, n_b) of all pairs of a half in `own` (n_a, h) and a half in `others` (n_b, h)."""

    def selected(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """Return the log-odds (n_a, c) of each own[i] with the c halves others[chosen[i, j]]."""


def mean_log_odds(ij: Tensor, ji: Tensor) -> Tensor:
    """Return the log-odds of (W_ij + W_ji) / 2 from the log-odds of W_ij and of W_ji.

    For log-odds a and b they are ln (s(a) + s(b)) - ln (s(-a) + s(-b)), where s is the sigmoid. That is exact even where W_ij
    and W_ji are rounded to 0 or 1.
    """
    same = torch.logaddexp(F.logsigmoid(ij), F.logsigmoid(ji))
    return same - torch.logaddexp(F.logsigmoid(-ij), F.logsigmoid(-ji))


class PhiScore:
    """Score by the similarity network: its log-odds of "same class". The first layer is split into a left and a right half."""

    def __init__(self, layers: Sequence[Layer], *, slope: float, log_odds: float = 0.0) -> None:
        (first, self._bias), *hidden, (last, last_bias) = [(w.detach(), b.detach()) for w, b in layers]
        self._left, self._right = (half.T for half in first.chunk(2, dim=1))
        self._hidden = [(weight.T, bias) for weight, bias in hidden]
        # log-odds are the difference of the two logits, so the last layer has one output
        self._last, self._shift = (last[0] - last[1])[:, None], float(last_bias[0] - last_bias[1]) - log_odds
        self.slope = slope
        self.widths = [len(self._bias), *(len(bias) for _, bias in hidden)]
        self.tile = 1 << max(6, int(math.log2(TILE_SIZE // max(self.widths))))

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
    def matrix(self, own: Tensor, others: Tensor) -> Tensor:
        n_rows, n_columns = self._tile_shape(len(others))
        log_odds, buffers = own.new_empty((len(own), len(others))), self._buffers(own)
        sums = buffers[0].view(n_rows, n_columns, -1)
        for top in range(0, len(own), n_rows):
            part = own[top : top + n_rows, None]
            for start in range(0, len(others), n_columns):
                block = others[None, start : start + n_columns]
                n, m = len(part), block.shape[1]
                torch.add(part, block, out=sums[:n, :m])
                log_odds[top : top + n, start : start + m] = self._forward(buffers).view(n_rows, n_columns)[:n, :m]
        return log_odds

    @torch.inference_mode()
    def selected(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        n_rows, n_columns = self._tile_shape(chosen.shape[1])
        log_odds, buffers = own.new_empty(chosen.shape), self._buffers(own)
        sums, where = buffers[0].view(n_rows, n_columns, -1), chosen.new_zeros((n_rows, n_columns))
        for top in range(0, len(own), n_rows):
            part = own[top : top + n_rows, None]
            for start in range(0, chosen.shape[1], n_columns):
                block = chosen[top : top + n_rows, start : start + n_columns]
                n, m = block.shape
                where[:n, :m] = block
                torch.index_select(others, 0, where.flatten(), out=buffers[0])
                sums[:n].add_(part)
                log_odds[top : top + n, start : start + m] = self._forward(buffers).view(n_rows, n_columns)[:n, :m]
        return log_odds

    @torch.inference_mode()
    def linearize(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """Return linear functions (n_a, h + 1) that approximate all layers after the first, one for each own[i].

        The slopes (h numbers) are the mean gradient at the pairs of own[i] with others[chosen[i]]; the last number is the
        intercept.
        """
        active = F.leaky_relu_(own[:, None] + others[chosen], self.slope).flatten(0, 1)
        before, hidden = [], active
        for weight, bias in self._hidden:
            before.append(torch.addmm(bias, hidden, weight))
            hidden = F.leaky_relu(before[-1], self.slope)
        slopes = self._last.T.expand(len(hidden), -1)
        for (weight, _), signs in zip(reversed(self._hidden), reversed(before), strict=True):
            slopes = torch.where(signs > 0, slopes, self.slope * slopes) @ weight.T
        slopes = slopes.reshape(*chosen.shape, -1).mean(1)
        log_odds = (hidden @ self._last + self._shift).view(chosen.shape).mean(1)
        linear_part = (active.view(*chosen.shape, -1).mean(1) * slopes).sum(1)
        return torch.cat([slopes, (log_odds - linear_part)[:, None]], dim=1)

    @torch.inference_mode()
    def linearized_pairs(self, own: Tensor, planes: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        """Return approximate log-odds (n, c) of n samples with the c others that `chosen` (n, c) lists for each.

        `own` (n, h) and `others` are the halves of the first layer. planes[i] (h + 1) are the slopes and the intercept of a
        linear function that replaces the layers above the first one for sample i.
        """
        log_odds, buffer = own.new_empty(chosen.shape), own.new_empty((self.tile, own.shape[1]))
        for i, items in enumerate(chosen):
            for start in range(0, len(items), self.tile):
                part = items[start : start + self.tile]
                sums = torch.index_select(others, 0, part, out=buffer[: len(part)]).add_(own[i])
                torch.mv(F.leaky_relu_(sums, self.slope), planes[i, :-1], out=log_odds[i, start : start + len(part)])
        return log_odds.add_(planes[:, -1:])

    def _tile_shape(self, n_columns: int) -> tuple[int, int]:
        """Return the numbers of rows and columns of a tile: as many columns as are needed, but at most a whole tile."""
        width = min(self.tile, 1 << max(0, n_columns - 1).bit_length())
        return self.tile // width, width

    def _buffers(self, like: Tensor) -> list[Tensor]:
        return [like.new_zeros((self.tile, width)) for width in (*self.widths, 1)]

    def _forward(self, buffers: list[Tensor]) -> Tensor:
        """Return the log-odds (tile,) for the sums of halves in the first buffer. No memory is allocated."""
        for (weight, bias), before, after in zip(self._hidden, buffers[:-1], buffers[1:], strict=False):
            torch.addmm(bias, F.leaky_relu_(before, self.slope), weight, out=after)
        *_, before, after = buffers
        return torch.mm(F.leaky_relu_(before, self.slope), self._last, out=after).add_(self._shift)[:, 0]


class KernelScore:
    """Score by any other similarity.

    `side` prepares the samples once, and `log_similarity` returns ln W of two blocks of prepared samples.
    """

    def __init__(self, log_similarity: LogSimilarity, side: Callable[[Tensor], Tensor] = lambda z: z) -> None:
        self._log_similarity = log_similarity
        self._side = side

    @torch.inference_mode()
    def left(self, z: Tensor) -> Tensor:
        sides = [self._side(chunk) for chunk in torch.split(z, CHUNK)]
        return torch.cat(sides) if sides else self._side(z)

    def right(self, z: Tensor) -> Tensor:
        return self.left(z)

    @torch.inference_mode()
    def matrix(self, own: Tensor, others: Tensor) -> Tensor:
        log_W = own.new_empty((len(own), len(others)))
        n_rows = max(1, MAX_KERNEL_PAIRS // max(1, len(others)))
        for top in range(0, len(own), n_rows):
            log_W[top : top + n_rows] = self._log_similarity(own[top : top + n_rows], others)
        return _log_odds(log_W)

    @torch.inference_mode()
    def selected(self, own: Tensor, others: Tensor, chosen: Tensor) -> Tensor:
        log_W = own.new_empty(chosen.shape)
        for i, items in enumerate(chosen):
            log_W[i] = self._log_similarity(own[i : i + 1], others[items])
        return _log_odds(log_W)


def _log_odds(log_W: Tensor) -> Tensor:
    """Return the log-odds ln (W / (1 - W)) from ln W; infinite where W is 1."""
    return log_W - torch.log(-torch.expm1(log_W))


def make_pair_score(predictor: Any) -> PairScore:
    """Return the score of a predictor: by its similarity network if it has one, else by its `side` and `log_similarity`."""
    phi = getattr(predictor, "similarity_net", None)
    if phi is None:
        return KernelScore(predictor.log_similarity, predictor.side)
    return PhiScore([(layer.weight, layer.bias) for layer in phi.layers], slope=phi.slope, log_odds=predictor.log_odds)
