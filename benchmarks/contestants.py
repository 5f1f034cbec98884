"""Who takes part where all deep methods are compared: every method that is trained in steps, and what rides on another base."""

from __future__ import annotations

from samekind.methods import METHODS, needs_steps

COMBINATIONS = ("pi_model+sntg", "temporal_ensembling+sntg", "pi_model+learned_graph", "fixmatch+learned_graph")


def deep_methods() -> list[str]:
    return [name for name in (*METHODS, *COMBINATIONS) if needs_steps(name)]
