"""Methods: one file for each semi-supervised method, and the registry that builds a method by its name."""

from samekind.methods.registry import (
    AUTO,
    METHODS,
    build,
    config_defaults,
    is_iterative,
    method_defaults,
    method_search_space,
    paper_settings,
    require_settings,
    resolve_method,
    scales_inputs,
    split_name,
    supervised_loss_fraction,
    supervised_method,
    uses_unlabelled,
)

__all__ = [
    "AUTO",
    "METHODS",
    "build",
    "config_defaults",
    "is_iterative",
    "method_defaults",
    "method_search_space",
    "paper_settings",
    "require_settings",
    "resolve_method",
    "scales_inputs",
    "split_name",
    "supervised_loss_fraction",
    "supervised_method",
    "uses_unlabelled",
]
