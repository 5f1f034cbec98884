"""Models in the format of sentence-transformers: a tiny one is written to disk and read again, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError, SettingError
from samekind.nets.text.sentence_transformer import SentenceTransformerEncoder
from samekind.nets.text.text_encoder_names import build_text_encoder, is_text_encoder

transformers = pytest.importorskip("transformers")
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] we sell iron tin zinc pear plum grape and".split()
TEXTS = ["we sell iron and tin", "we sell pear", "plum and grape", "we sell zinc and tin and iron"]


def write_model(folder: Path, pooling: str = "mean", *more: str, pooling_config: dict[str, Any] | None = None) -> Path:
    """Write a random BERT with two layers, as sentence-transformers does; `more` are modules after the pooling."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    kinds = ["Transformer", "Pooling", *more]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"x.{kind}"} for i, kind in enumerate(kinds)
    ]
    for module in modules[1:]:
        (folder / str(module["path"])).mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    flags = pooling_config or {f"pooling_mode_{pooling}_token{'' if pooling in ('cls', 'last') else 's'}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **flags}))
    return folder


def states(folder: Path, text: str) -> torch.Tensor:
    """Return the last states (t, d) of the tokens of one text, by transformers alone."""
    tokenizer, net = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        return net.eval()(**tokenizer([text], return_tensors="pt")).last_hidden_state[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", lambda h: h.mean(0)),
        ("max", lambda h: h.amax(0)),
        ("cls", lambda h: h[0]),
        ("mean_sqrt_len", lambda h: h.sum(0) / len(h) ** 0.5),
        ("weightedmean", lambda h: (h * torch.arange(1, len(h) + 1)[:, None]).sum(0) / sum(range(1, len(h) + 1))),
    ],
)
def test_each_pooling_gives_the_features_of_its_formula(tmp_path: Path, pooling: str, expected: Any) -> None:
    encoder = SentenceTransformerEncoder(str(write_model(tmp_path, pooling)))
    z = encoder(TEXTS)  # of different lengths, so that padding must not count
    for text, found in zip(TEXTS, z, strict=True):
        np.testing.assert_allclose(found, expected(states(tmp_path, text)).numpy(), atol=1e-5)


def test_the_last_token_and_a_mode_by_name_are_read_too(tmp_path: Path) -> None:
    last = SentenceTransformerEncoder(str(write_model(tmp_path / "a", pooling_config={"pooling_mode": "lasttoken"})))
    np.testing.assert_allclose(last(TEXTS[:2])[1], states(tmp_path / "a", TEXTS[1])[-1].numpy(), atol=1e-5)


def test_layers_after_the_pooling_are_applied(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "mean", "Dense", "Normalize")
    weight, bias = torch.randn(4, 16), torch.randn(4)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    (folder / "2_Dense" / "config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    z = SentenceTransformerEncoder(str(folder))(TEXTS[:1])
    expected = torch.tanh(weight @ states(folder, TEXTS[0]).mean(0) + bias)
    np.testing.assert_allclose(z[0], (expected / expected.norm()).numpy(), atol=1e-5)


def test_a_long_piece_is_cut_to_the_tokens_of_the_model_and_empty_texts_have_features(tmp_path: Path) -> None:
    encoder = SentenceTransformerEncoder(str(write_model(tmp_path)))
    z = encoder(["we sell iron " * 80, "", "\U0001f600"])
    assert z.shape == (3, 16) and np.isfinite(z).all()


def test_a_fitted_model_names_it_and_refuses_other_weights(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "st")
    name = f"st:{folder}"
    y = ["metal", "fruit", None, None] * 3
    model = SemiSupervisedClassifier(encoder=name, random_state=0).fit(TEXTS * 3, y)
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS))
    config = folder / "sentence_bert_config.json"
    config.write_text(config.read_text().replace("12", "3"))
    with pytest.raises(ModelFileError, match="differs from the one that the model was fitted with"):
        SemiSupervisedClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "modules.json").unlink(), "no modules.json"),
        (lambda folder: (folder / "modules.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "modules.json").write_text("[1]"), "expected a list of modules"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "cannot be loaded"),
        (lambda folder: (folder / "1_Pooling" / "config.json").write_text("{}"), "is of an unknown kind"),
    ],
)
def test_a_damaged_model_is_refused_in_one_sentence(tmp_path: Path, change: Any, message: str) -> None:
    change(write_model(tmp_path))
    with pytest.raises(ModelFileError, match=message):
        build_text_encoder(f"st:{tmp_path}")


def test_an_unknown_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="module WordWeights, which samekind does not support"):
        build_text_encoder(f"st:{write_model(tmp_path, 'mean', 'WordWeights')}")
    assert is_text_encoder("st:some/model") and is_text_encoder("tfidf,st:some/model") and not is_text_encoder("hf:some/model")
