"""Stacked ensemble for vectors: linear and kernel classifiers, alone and smoothed over nearest-neighbour graphs.

`input_views` scales the samples, and `kernel_logistic` fits the base classifiers. `smoothing` spreads their predictions over
graphs. `gaussian_mixtures` fits Gaussians to labelled and unlabelled samples. `ensemble_candidates` and `model_weights` give
each of these models a weight by the likelihood of held-out labels, and `stacked_ensemble` combines them.
"""
