"""Folding of batch norms: each is merged into the convolution before it, which gives the same features in less time."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

TOLERANCE = 1e-3  # largest allowed difference of the features, relative to the largest feature


@torch.no_grad()
def fold_batch_norms(encoder: nn.Module, images: Tensor) -> nn.Module:
    """Return the encoder in eval mode with its batch norms folded into convolutions.

    A batch norm is folded if it is registered directly after a convolution. That does not prove that it is also called after
    it. So the features of `images` are compared, and if they changed, the encoder is returned unchanged.
    """
    folded = copy.deepcopy(encoder).eval()
    for parent in list(folded.modules()):
        children = list(parent.named_children())
        for (name, conv), (norm_name, norm) in pairwise(children):
            if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d and conv.out_channels == norm.num_features:
                setattr(parent, name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, norm_name, nn.Identity())
    expected, found = encoder(images), folded(images)
    near = TOLERANCE * float(expected.abs().max())
    return folded if torch.allclose(found, expected, rtol=TOLERANCE, atol=near) else encoder
