"""What may be chosen on validation images: for each method a small space of its own, beside what all share.

A choice is a tuple of values, and LogUniform a range on a logarithmic scale. The first trial is always the default.
"""

from __future__ import annotations

from typing import NamedTuple

from samekind.methods import parts


class LogUniform(NamedTuple):
    low: float
    high: float


Space = dict[str, LogUniform | tuple[float | str, ...]]

# of the estimator, for every method alike, by the optimiser that the data gets
RATES: dict[str, dict[str, LogUniform]] = {"learning_rate": {"adam": LogUniform(0.001, 0.01), "sgd": LogUniform(0.05, 0.5)}}

CONSISTENCY: Space = {"w_max": LogUniform(1.0, 100.0), "rampup": (0.1, 0.3, 0.6)}
GUESSES: Space = {"threshold": (0.8, 0.9, 0.95), "lambda_u": (0.5, 1.0, 2.0)}
SETTINGS: dict[str, Space] = {
    "supervised": {},
    "pseudo_label": {"threshold": (0.8, 0.9, 0.95), "w_max": LogUniform(0.3, 3.0)},
    "pi_model": CONSISTENCY,
    "temporal_ensembling": CONSISTENCY,
    "mean_teacher": CONSISTENCY,
    "semi_supervised_embedding": {},
    "vat": {"eps": LogUniform(1.0, 10.0), "w_max": LogUniform(0.3, 3.0)},
    "ict": {"w_max": LogUniform(1.0, 100.0), "mixing": (0.1, 0.5, 1.0)},
    "mixmatch": {"w_max": LogUniform(5.0, 100.0), "mixing": (0.5, 0.75)},
    "remixmatch": {"w_max": LogUniform(0.5, 5.0), "K": (1, 2)},
    "fixmatch": {**GUESSES, "rise": (0.0, 0.4)},
    "flexmatch": {**GUESSES, "rise": (0.0, 0.4)},
    "freematch": {"lambda_u": (0.5, 1.0, 2.0), "rise": (0.0, 0.4)},
    "softmatch": {"lambda_u": (0.5, 1.0, 2.0), "rise": (0.0, 0.4)},
    "simmatch": {**GUESSES, "lambda_in": (0.5, 1.0)},
    "comatch": {**GUESSES, "lambda_c": (0.3, 1.0)},
    "sntg": {"k": LogUniform(0.1, 1.0)},
    "fast_swa": {"cycles_from": (0.25, 0.5)},
    "cclp": {"w": LogUniform(0.03, 1.0), "n_steps": (1, 3)},
    "lpdssl": {"start": (0.3, 0.5), "n_neighbors": (20, 50)},
    "lpdssl+mean_teacher": {"start": (0.3, 0.5), "n_neighbors": (20, 50)},
    "gscnn": {"weight": LogUniform(0.1, 3.0), "start": (0.2, 0.5)},
    "learned_graph": {"lambda1": LogUniform(0.1, 3.0), "lambda2": LogUniform(0.03, 3.0)},
    "label_propagation": {"n_neighbors": (10, 20, 50)},
    "harmonic": {"n_neighbors": (10, 20, 50)},
    "lgc": {"n_neighbors": (10, 20, 50), "alpha": (0.9, 0.99)},
    "laprls": {"n_neighbors": (10, 20, 50)},
    "mincut": {"n_neighbors": (10, 20, 50)},
    "poisson": {"n_neighbors": (10, 20, 50)},
}


def space_of(method: str) -> Space:
    """What may be chosen for a method: the settings of its addition where there is one, else its own, if it has a space."""
    base, addition = parts(method)
    return SETTINGS.get(addition or base, {})
