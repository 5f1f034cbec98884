"""Registry of methods: the list of all methods, and functions that build or describe a method by its name.

A name is a method ("mean_teacher"), or a base method and an add-on that wraps it ("pi_model+learned_graph"). The name of an
add-on alone means the add-on around the base method that its MethodSpec names as default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from typing import Any

from samekind.errors import SettingError, did_you_mean
from samekind.methods.base import Method, Task
from samekind.methods.spec import DataKind, MethodSpec, SearchSpace
from samekind.methods.supervised import Supervised
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.classifier import Classifier

MODULES = (  # modules of this package; each defines a MethodSpec named SPEC
    "supervised",
    "pseudo_label",
    "pi_model",
    "temporal_ensembling",
    "mean_teacher",
    "semi_supervised_embedding",
    "vat",
    "ict",
    "mixmatch",
    "remixmatch",
    "fixmatch",
    "flexmatch",
    "freematch",
    "softmatch",
    "simmatch",
    "comatch",
    "sntg",
    "fast_swa",
    "cclp",
    "lpdssl",
    "lpdssl_mean_teacher",
    "gscnn",
    "label_propagation",
    "harmonic",
    "lgc",
    "laprls",
    "mincut",
    "poisson",
    "ensemble",
    "ensemble_teacher",
    "dataset_graph",
    "learned_graph_extensions",  # registers "learned_graph"
)


def _load_spec(module: str) -> MethodSpec:
    spec: MethodSpec = import_module(f"samekind.methods.{module}").SPEC
    return spec


METHODS: dict[str, MethodSpec] = {spec.name: spec for spec in map(_load_spec, MODULES)}


def split_name(name: str) -> tuple[str, str | None]:
    """Return ("method", None) or ("base", "add-on").

    For an unknown name, raise SettingError with the most similar known name.
    """
    # a registered name, such as "lpdssl+mean_teacher", may itself contain a plus sign
    names = [name] if name in METHODS else name.split("+")
    for part in names:
        if part not in METHODS:
            raise SettingError(f"no method is called {part!r}; {did_you_mean(part, METHODS)}")
    last = METHODS[names[-1]]
    if len(names) == 1:
        return (last.base, names[0]) if last.base else (names[0], None)
    if len(names) > 2 or last.base is None or METHODS[names[0]].base is not None:
        raise SettingError(
            f"method {name!r} is not a base method plus an add-on; write BASE+ADDON, such as 'pi_model+learned_graph'"
        )
    return names[0], names[-1]


AUTO = "auto"  # the default: `resolve_method` chooses a method for the kind of data


def resolve_method(name: str, kind: DataKind, *, trained: bool) -> str:
    """Return the method that "auto" stands for; return any other name unchanged.

    For vectors, "auto" is the ensemble, which has no training steps. For images, and if the user has set options of the
    training steps (`trained`), "auto" is the learned graph.
    """
    if name != AUTO:
        return name
    return "ensemble" if kind == "vectors" and not trained else "learned_graph"


def scales_inputs(name: str) -> bool:
    """Return whether a method scales its inputs itself, so that they must not be scaled before."""
    return bool(_specs(name)[0].method.scales_inputs)  # type: ignore[attr-defined]


def is_iterative(name: str) -> bool:
    """Return whether a method has training steps; a method on a fixed graph has none."""
    return bool(_specs(name)[0].method.iterative)  # type: ignore[attr-defined]


def uses_unlabelled(name: str) -> bool:
    """Return whether a method learns from unlabelled samples too."""
    return _specs(name)[0].method is not Supervised


def supervised_loss_fraction(name: str, task: Task) -> float:
    """Return the factor by which a method multiplies the mean cross-entropy of the labelled samples.

    The factor is 1, except for methods that divide all loss terms by the size of the whole batch: there it is the labelled
    fraction of the batch. SGD takes shorter steps when the whole loss is smaller by a factor; Adam does not.
    """
    averages = any(spec.method.averages_over_batch for spec in _specs(name))  # type: ignore[attr-defined]
    return task.batch_labelled / (task.batch_labelled + task.batch_unlabelled) if averages else 1.0


def build(name: str, net: Classifier | None, task: Task, settings: Mapping[str, Any] | None = None) -> Method:
    """Return a new method with the given settings.

    For a base method with an add-on, each of the two gets the settings it knows.

    SettingError is raised for a setting that neither knows, and for an add-on that cannot wrap the base method.
    """
    specs = _specs(name)
    configs = _configs(name, specs, settings or {})
    base: Method = specs[0].method(net, task, configs[0])
    if len(specs) == 1:
        return base
    wrapper: type[MethodWrapper] = specs[1].method
    if not wrapper.can_wrap(base):
        raise SettingError(
            f"{specs[1].name!r} cannot wrap {specs[0].name!r}; use it with a method that trains a network step by step, "
            "such as 'mean_teacher' or 'pi_model'."
        )
    return wrapper(base, task, configs[1])  # type: ignore[call-arg]


def supervised_method(net: Classifier, task: Task) -> Method:
    """Return the method of a supervised warm-up, which trains the net on the labelled samples alone."""
    return Supervised(net, task)


def require_settings(names: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise SettingError unless one of these methods has all of the settings, and the values are in their ranges."""
    errors = []
    for name in names:
        try:
            _configs(name, _specs(name), settings)
            return
        except SettingError as error:
            errors.append(str(error).removesuffix("."))
    raise SettingError("; ".join(dict.fromkeys(errors)))


def method_defaults(name: str, kind: DataKind = "vectors") -> dict[str, Any]:
    """Return the settings of preset="auto" for a kind of data. Settings of an add-on override those of its base method."""
    settings: dict[str, Any] = {}
    for spec in _specs(name):
        settings |= {**spec.defaults, **spec.defaults_by_kind.get(kind, {})}
    return settings


def paper_settings(name: str, kind: DataKind = "vectors") -> dict[str, Any]:
    """Return the settings of preset="paper" for one kind of data that differ from the defaults of the config class."""
    settings: dict[str, Any] = {}
    for spec in _specs(name):
        settings |= spec.paper_by_kind.get(kind, {})
    return settings


def config_defaults(name: str) -> dict[str, Any]:
    """Return every setting of a method with the default of its config class. These defaults are the paper's."""
    return {key: value for spec in _specs(name) for key, value in asdict(spec.config()).items()}


def method_search_space(name: str) -> SearchSpace:
    """Return the ranges of a hyperparameter search: those of the add-on if the name has one, else those of the method."""
    return _specs(name)[-1].search_space


def _specs(name: str) -> list[MethodSpec]:
    """Return the MethodSpec of a method, or those of a base method and its add-on."""
    return [METHODS[part] for part in split_name(name) if part is not None]


def _configs(name: str, specs: list[MethodSpec], settings: Mapping[str, Any]) -> list[Any]:
    known = [{field.name for field in fields(spec.config)} for spec in specs]
    for key in settings:
        if not any(key in names for names in known):
            raise SettingError(f"{name} has no setting {key!r}; {did_you_mean(key, set().union(*known))}")
    return [
        spec.config(**{key: value for key, value in settings.items() if key in names})
        for spec, names in zip(specs, known, strict=True)
    ]
