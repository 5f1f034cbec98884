"""Compact clusters: on the graph of a batch, a walk that keeps to one class should be equally likely to end at any of its rows.

Kamnitsas et al. 2018, arXiv:1806.02679. Gradient flows through everything, the inverse included.
"""

from __future__ import annotations

import torch
from torch import Tensor

FLOOR = 1e-5  # share of a hop that goes anywhere: every row reaches a label, and I - H_UU has an inverse
EMPTY = 1e-5  # added to the mass of a class: there may be none of it in the batch
EPS = 1e-6  # inside the logarithm


def hops(z: Tensor) -> Tensor:
    """H (n, n): rows of softmax(z z^T), self edges included, with a floor of FLOOR/n."""
    return FLOOR / len(z) + (1.0 - FLOOR) * torch.softmax(z @ z.T, dim=1)


def propagated(H: Tensor, Y: Tensor) -> Tensor:
    """Phi (n, C) = [Y_L; (I - H_UU)^-1 H_UL Y_L], the labelled rows first."""
    n_l, n = len(Y), len(H)
    H_UL, H_UU = H[n_l:, :n_l], H[n_l:, n_l:]
    return torch.cat([Y, torch.linalg.solve(torch.eye(n - n_l, dtype=H.dtype, device=H.device) - H_UU, H_UL @ Y)])


def compact_clustering(z: Tensor, Y: Tensor, n_steps: int = 3) -> Tensor:
    """(1/S) SUM_s mean_i -SUM_j T_ij ln(H^(s)_ij + EPS), from features z (n, d) whose first rows have the labels Y (n_l, C).

    T_ij = SUM_c Phi_ic Phi_jc / m_c with m_c = SUM_i Phi_ic; H^(1) = H and H^(s) = (H o M) H^(s-1), a matrix product, where the
    mask M = Phi Phi^T lets a walk pass between rows of one class only.
    """
    H = hops(z)
    Phi = propagated(H, Y)
    T = (Phi / (Phi.sum(0) + EMPTY)) @ Phi.T
    within = H * (Phi @ Phi.T)
    reached, loss = H, z.new_zeros(())
    for s in range(n_steps):
        reached = reached if s == 0 else within @ reached
        loss = loss - (T * torch.log(reached + EPS)).sum(1).mean()
    return loss / n_steps
