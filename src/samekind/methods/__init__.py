"""Methods: one file for each paper, and the one table of their names.

A name is a method ("mean_teacher"), or an addition on a base ("pi_model+learned_graph"). An addition alone rides on the
base the table gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from samekind.errors import SettingError, did_you_mean
from samekind.methods import (
    cclp,
    flexmatch,
    freematch,
    ict,
    learned_graph,
    lpdssl,
    mean_teacher,
    pi_model,
    remixmatch,
    softmatch,
    temporal_ensembling,
    vat,
)
from samekind.methods.base import Method, Task
from samekind.methods.cclp import CCLP, CCLPConfig
from samekind.methods.comatch import CoMatch, CoMatchConfig
from samekind.methods.fast_swa import FastSWA, FastSWAConfig
from samekind.methods.fixmatch import FixMatch, FixMatchConfig
from samekind.methods.flexmatch import FlexMatch, FlexMatchConfig
from samekind.methods.freematch import FreeMatch, FreeMatchConfig
from samekind.methods.gscnn import GSCNN, GSCNNConfig
from samekind.methods.harmonic import Harmonic, HarmonicConfig
from samekind.methods.ict import ICT, ICTConfig
from samekind.methods.label_propagation import LabelPropagation, LabelPropagationConfig
from samekind.methods.laprls import LapRLS, LapRLSConfig
from samekind.methods.learned_graph import LearnedGraph, LearnedGraphConfig
from samekind.methods.lgc import LGCConfig, LocalGlobalConsistency
from samekind.methods.lpdssl import LPDSSL, LPDSSLConfig, LPDSSLOnBase
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig
from samekind.methods.mincut import Mincut, MincutConfig
from samekind.methods.mixmatch import MixMatch, MixMatchConfig
from samekind.methods.pi_model import PiModel, PiModelConfig
from samekind.methods.poisson import Poisson, PoissonConfig
from samekind.methods.pseudo_label import PseudoLabel, PseudoLabelConfig
from samekind.methods.remixmatch import ReMixMatch, ReMixMatchConfig
from samekind.methods.semi_supervised_embedding import SemiSupervisedEmbedding, SemiSupervisedEmbeddingConfig
from samekind.methods.simmatch import SimMatch, SimMatchConfig
from samekind.methods.sntg import SNTG, SNTGConfig
from samekind.methods.softmatch import SoftMatch, SoftMatchConfig
from samekind.methods.supervised import Supervised, SupervisedConfig
from samekind.methods.temporal_ensembling import TemporalEnsembling, TemporalEnsemblingConfig
from samekind.methods.vat import VAT, VATConfig
from samekind.nets.classifier import Classifier

Kind = Literal["vectors", "images", "photos"]


@dataclass(frozen=True)
class Entry:
    """A method, its settings, what it is in a line, and the base that an addition rides on when none is named."""

    method: type
    config: type
    idea: str
    base: str | None = None  # None: not an addition
    recipe: Mapping[str, Any] = field(default_factory=dict)  # settings found good on data nobody tuned for
    by_kind: Mapping[Kind, Mapping[str, Any]] = field(default_factory=dict)  # and what is better otherwise for some rows


METHODS: dict[str, Entry] = {
    "supervised": Entry(Supervised, SupervisedConfig, "the labelled rows and nothing else"),
    "pseudo_label": Entry(PseudoLabel, PseudoLabelConfig, "what the network is sure of, it takes for a label"),
    "pi_model": Entry(PiModel, PiModelConfig, "two noisy looks by the same network must agree", recipe=pi_model.RECIPE),
    "temporal_ensembling": Entry(
        TemporalEnsembling,
        TemporalEnsemblingConfig,
        "agree with what you said in the epochs before",
        recipe=temporal_ensembling.RECIPE,
    ),
    "mean_teacher": Entry(MeanTeacher, MeanTeacherConfig, "agree with a slow average of yourself", recipe=mean_teacher.RECIPE),
    "semi_supervised_embedding": Entry(
        SemiSupervisedEmbedding,
        SemiSupervisedEmbeddingConfig,
        "neighbours on a fixed graph are drawn together, strangers pushed apart",
    ),
    "vat": Entry(VAT, VATConfig, "the worst small change of a row must not change the answer", recipe=vat.RECIPE),
    "ict": Entry(ICT, ICTConfig, "between two rows the answer lies between theirs", recipe=ict.RECIPE),
    "mixmatch": Entry(MixMatch, MixMatchConfig, "guess, sharpen, and learn from mixtures of everything"),
    "remixmatch": Entry(
        ReMixMatch,
        ReMixMatchConfig,
        "mixtures, guesses held to the shares of the classes, strong looks and turned images",
        recipe=remixmatch.RECIPE,
    ),
    "fixmatch": Entry(FixMatch, FixMatchConfig, "a sure guess about a weak look is the label of a strong one"),
    "flexmatch": Entry(
        FlexMatch, FlexMatchConfig, "fixmatch, and a class that lags behind is heard sooner", recipe=flexmatch.RECIPE
    ),
    "freematch": Entry(
        FreeMatch, FreeMatchConfig, "fixmatch, and how sure is sure enough follows the student", recipe=freematch.RECIPE
    ),
    "softmatch": Entry(SoftMatch, SoftMatchConfig, "fixmatch, and an unsure guess says less", recipe=softmatch.RECIPE),
    "simmatch": Entry(SimMatch, SimMatchConfig, "a strong look is like the labelled rows that the weak one is like"),
    "comatch": Entry(CoMatch, CoMatchConfig, "answers that agree draw rows together, and rows close by smooth answers"),
    "sntg": Entry(SNTG, SNTGConfig, "what the teacher gives one class lies together", "mean_teacher"),
    "fast_swa": Entry(FastSWA, FastSWAConfig, "an average of weights met in cycles answers", "mean_teacher"),
    "cclp": Entry(CCLP, CCLPConfig, "each class one compact cluster in the graph of a batch", recipe=cclp.RECIPE),
    "lpdssl": Entry(LPDSSL, LPDSSLConfig, "labels spread over the net's own features teach it", recipe=lpdssl.RECIPE),
    "lpdssl+mean_teacher": Entry(
        LPDSSLOnBase, LPDSSLConfig, "the same, and agree with a slow average", "mean_teacher", lpdssl.RECIPE
    ),
    "gscnn": Entry(GSCNN, GSCNNConfig, "labels completed as a low-rank matrix, kept apart by triplets"),
    "label_propagation": Entry(LabelPropagation, LabelPropagationConfig, "labels flow along a fixed neighbour graph"),
    "harmonic": Entry(Harmonic, HarmonicConfig, "labels flow along a fixed graph, classes keep their sizes"),
    "lgc": Entry(LocalGlobalConsistency, LGCConfig, "labels spread over a fixed graph, and may be overruled"),
    "laprls": Entry(LapRLS, LapRLSConfig, "a smooth function that is flat along a fixed graph"),
    "mincut": Entry(Mincut, MincutConfig, "classes part where a fixed graph is cut most cheaply"),
    "poisson": Entry(Poisson, PoissonConfig, "labels are sources and sinks on a fixed graph"),
    "learned_graph": Entry(
        LearnedGraph,
        LearnedGraphConfig,
        "a classifier and a graph learn each other",
        "mean_teacher",
        learned_graph.RECIPE,
        {"vectors": learned_graph.VECTORS, "photos": learned_graph.PHOTOS},
    ),
}


def parts(name: str) -> tuple[str, str | None]:
    """("method", None), or ("base", "addition"); an unknown name is refused with the nearest known one."""
    names = [name] if name in METHODS else name.split("+")  # one that is always named with its base has a line of its own
    for part in names:
        if part not in METHODS:
            raise SettingError(f"no method is called {part!r}; {did_you_mean(part, METHODS)}")
    addition = METHODS[names[-1]]
    if len(names) == 1:
        return (addition.base, names[0]) if addition.base else (names[0], None)
    if len(names) > 2 or addition.base is None or METHODS[names[0]].base is not None:
        raise SettingError(f"{name!r} does not combine; write BASE+ADDITION, for example 'pi_model+learned_graph'")
    return names[0], names[-1]


def is_iterative(name: str) -> bool:
    """Whether the method is trained by steps at all; one on a fixed graph only looks at the pool."""
    return bool(METHODS[parts(name)[0]].method.iterative)  # type: ignore[attr-defined]


def uses_unlabelled(name: str) -> bool:
    """Whether a method learns from anything but labels."""
    return METHODS[parts(name)[0]].method is not Supervised


def supervised_loss_fraction(name: str, task: Task) -> float:
    """What part of its loss a method gives to the mean cross-entropy of labels: all of it, or, where terms are means over all
    rows of a step (`per_row`), as much as these have labels. Adam does not notice; SGD's steps are as long as the gradient."""
    methods = [METHODS[part].method for part in parts(name) if part is not None]
    per_row = any(getattr(method, "per_row", False) for method in methods)
    return task.batch_labelled / (task.batch_labelled + task.batch_unlabelled) if per_row else 1.0


def build(name: str, net: Classifier | None, task: Task, settings: Mapping[str, Any] | None = None) -> Method:
    """The method called `name`, ready to train; each part takes the settings it knows, and none may be left over."""
    base_name, addition_name = parts(name)
    chosen = [METHODS[part] for part in (base_name, addition_name) if part is not None]
    configs = _configs(name, chosen, settings or {})
    base = chosen[0].method(net, task, configs[0])
    if addition_name is None:
        return cast(Method, base)
    if not all(hasattr(base, part) for part in chosen[1].method.rides_on):  # type: ignore[attr-defined]
        raise SettingError(
            f"{addition_name!r} cannot ride on {base_name!r}; use 'mean_teacher', 'pi_model' or another base it knows"
        )
    return cast(Method, chosen[1].method(base, task, configs[1]))


def supervised_method(net: Classifier, task: Task) -> Method:
    """The net learns the labelled rows and nothing else: what a run may begin with before the pool is heard."""
    return Supervised(net, task)


def method_defaults(name: str, kind: Kind = "vectors") -> dict[str, Any]:
    """The settings that the estimator starts from: those of the base, and over them those of the addition."""
    start: dict[str, Any] = {}
    for entry in (METHODS[part] for part in parts(name) if part is not None):
        start |= {**entry.recipe, **entry.by_kind.get(kind, {})}
    return start


def config_defaults(name: str) -> dict[str, Any]:
    """Every setting of a method with its default."""
    return {key: value for part in parts(name) if part is not None for key, value in asdict(METHODS[part].config()).items()}


def _configs(name: str, chosen: list[Entry], settings: Mapping[str, Any]) -> list[Any]:
    known = [{field.name for field in fields(entry.config)} for entry in chosen]
    for key in settings:
        if not any(key in names for names in known):
            raise SettingError(f"{name} has no setting {key!r}; {did_you_mean(key, set().union(*known))}")
    return [
        entry.config(**{key: value for key, value in settings.items() if key in names})
        for entry, names in zip(chosen, known, strict=True)
    ]
