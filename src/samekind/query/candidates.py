"""Who might be most alike, found by products of matrices, so that Phi has to look at few pairs only.

The most alike by Phi are not the nearest in z: Phi is surest of things far out in the direction of their class. So its
margins are guessed. A query is put before a few probes, and what Phi says of them is fitted by a linear function of z
(least squares). The best by this guess are put before Phi; a second function is then fitted to what it said of those
alone, where Phi is close to linear, and names more.
"""

from __future__ import annotations

import torch
from torch import Tensor

PROBES = 512  # items that every query is asked about
RIDGE = 1e-3  # times the number of rows a function is fitted to
SAMPLE = 20_000  # rows that scales are taken from


class Guess:
    """Linear functions of features z (n, d), fitted to margins. A function is (weights (d,), constant)."""

    def __init__(self, z: Tensor, probes: Tensor) -> None:
        self.probes = probes
        self._z = z
        some = z[torch.linspace(0, len(z) - 1, min(len(z), SAMPLE)).long()].double()
        self._mean, self._scale = some.mean(0), some.std(0, correction=0).clamp_min(1e-6)
        P = self._basis(z[probes])
        self._solved: Tensor = torch.linalg.solve(_gram(P), P.T)

    def from_probes(self, margins: Tensor) -> Tensor:
        """Functions (q, d + 1) from the margins (q, n_probes) with the probes."""
        return margins.double() @ self._solved.T

    def around(self, chosen: Tensor, margins: Tensor) -> Tensor:
        """Functions (q, d + 1) from margins (q, c) with chosen items (q, c), the largest margins counting most."""
        high = margins.double() - margins.double().amax(1, keepdim=True)
        weight = torch.exp(high / high.std(1, keepdim=True).clamp_min(1e-9)).sqrt()[..., None]
        P = self._basis(self._z[chosen]) * weight
        right = P.transpose(1, 2) @ (margins.double()[..., None] * weight)
        functions: Tensor = torch.linalg.solve(_gram(P), right)[..., 0]
        return functions

    def margins(self, functions: Tensor) -> Tensor:
        """(q, n): what the functions guess of all items."""
        weights, constants = functions[:, :-1] / self._scale, functions[:, -1]
        constants = constants - weights @ self._mean
        return torch.addmm(constants[:, None].to(self._z.dtype), weights.to(self._z.dtype), self._z.T)

    def _basis(self, z: Tensor) -> Tensor:
        seen = (z.double() - self._mean) / self._scale
        return torch.cat([seen, torch.ones_like(seen[..., :1])], dim=-1)


def _gram(P: Tensor) -> Tensor:
    G = P.transpose(-1, -2) @ P
    return G + RIDGE * P.shape[-2] * torch.eye(G.shape[-1], dtype=G.dtype)
