"""Compact clustering: a random walk that stays within one class should end at each sample of this class equally often.

Kamnitsas et al. 2018, arXiv:1806.02679. The gradient flows through all operations, including the matrix inverse.
"""

from __future__ import annotations

import torch
from torch import Tensor

# probability of a jump to a random sample; without jumps, the matrix I - H_UU of `propagate_labels` may have no inverse
TELEPORT = 1e-5
EMPTY_CLASS = 1e-5  # added to the size of each class, because a batch may have no sample of a class
EPS = 1e-6  # added inside the logarithm, which would be infinite at 0


def transition_matrix(z: Tensor) -> Tensor:
    """Return the probabilities H (n, n) of a step from sample i to sample j: the softmax over j of z_i · z_j, plus random
    jumps.

    A step from a sample to itself is possible.
    """
    return TELEPORT / len(z) + (1.0 - TELEPORT) * torch.softmax(z @ z.T, dim=1)


def propagate_labels(H: Tensor, Y: Tensor) -> Tensor:
    """Return class probabilities Phi (n, C) of all samples: Y for labelled ones, (I - H_UU)^-1 H_UL Y for unlabelled ones.

    The labelled samples come first. H_UU are the probabilities of steps between unlabelled samples, and H_UL those of steps
    from unlabelled to labelled samples.
    """
    n_l, n = len(Y), len(H)
    H_UL, H_UU = H[n_l:, :n_l], H[n_l:, n_l:]
    return torch.cat([Y, torch.linalg.solve(torch.eye(n - n_l, dtype=H.dtype, device=H.device) - H_UU, H_UL @ Y)])


def compact_clustering(z: Tensor, Y: Tensor, n_steps: int = 3) -> Tensor:
    """Return the loss (1/S) SUM_s mean_i -SUM_j T_ij ln(H^(s)_ij + EPS) over random walks of s = 1 to S = `n_steps` steps.

    z (n, d) are the features of a batch. The first n_l samples have the one-hot labels Y (n_l, C); Phi (n, C) are the labels
    propagated to all samples. The target T_ij = SUM_c Phi_ic Phi_jc / m_c, with m_c = SUM_i Phi_ic, is uniform within each
    class. H^(1) = H are the transition probabilities, and H^(s) = (H o M) H^(s-1) is a matrix product, where the mask M = Phi
    Phi^T lets a walk pass only between samples of one class.
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
