"""Compact clustering: a random walk within one class should end at each sample of it with the same probability.

Kamnitsas et al. 2018, arXiv:1806.02679. Gradient flows through everything, the matrix inverse included.
"""

from __future__ import annotations

import torch
from torch import Tensor

TELEPORT = 1e-5  # probability of a jump to a random sample; without it I - H_UU may have no inverse
EMPTY_CLASS = 1e-5  # added to the mass of each class, because a batch may hold no sample of it
EPS = 1e-6  # added inside the logarithm, which would be infinite at 0


def transition_matrix(z: Tensor) -> Tensor:
    """Return H (n, n): the row-wise softmax of z z^T, self edges included, plus a teleport probability."""
    return TELEPORT / len(z) + (1.0 - TELEPORT) * torch.softmax(z @ z.T, dim=1)


def propagate_labels(H: Tensor, Y: Tensor) -> Tensor:
    """Return propagated labels Phi (n, C) = [Y_L; (I - H_UU)^-1 H_UL Y_L]; the labelled samples come first."""
    n_l, n = len(Y), len(H)
    H_UL, H_UU = H[n_l:, :n_l], H[n_l:, n_l:]
    return torch.cat([Y, torch.linalg.solve(torch.eye(n - n_l, dtype=H.dtype, device=H.device) - H_UU, H_UL @ Y)])


def compact_clustering(z: Tensor, Y: Tensor, n_steps: int = 3) -> Tensor:
    """Return the loss (1/S) SUM_s mean_i -SUM_j T_ij ln(H^(s)_ij + EPS) over walks of s = 1 to S = `n_steps` steps.

    z (n, d) are the features; the first n_l samples have the one-hot labels Y (n_l, C). The target is
    T_ij = SUM_c Phi_ic Phi_jc / m_c with m_c = SUM_i Phi_ic. H^(1) = H, and H^(s) = (H o M) H^(s-1) is a matrix product, where
    the mask M = Phi Phi^T lets a random walk pass only between samples of one class.
    """
    H = transition_matrix(z)
    Phi = propagate_labels(H, Y)
    T = (Phi / (Phi.sum(0) + EMPTY_CLASS)) @ Phi.T
    within_class = H * (Phi @ Phi.T)
    walk, loss = H, z.new_zeros(())
    for s in range(n_steps):
        walk = walk if s == 0 else within_class @ walk
        loss = loss - (T * torch.log(walk + EPS)).sum(1).mean()
    return loss / n_steps
