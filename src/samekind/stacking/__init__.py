"""Stacked ensemble for vectors: linear and kernel classifiers, alone and smoothed over nearest-neighbour graphs.

The flow: `input_views` scales the samples, `kernel_logistic` fits the base classifiers, `smoothing` spreads their predictions
over graphs, `model_weights` weights all candidates by the likelihood of held-out labels, and `stacked_ensemble` joins them.
"""
