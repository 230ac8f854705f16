"""Models of transformers by name: from a directory, a class or a type, without any download."""

import json
import socket
from pathlib import Path

import pytest
import torch

import cafenet
from cafenet.cli.main import main
from cafenet.errors import ModelNameError, SlimFileError
from cafenet.models import example_inputs_of
from cafenet.models.hugging_face import save_pretrained
from tests.helpers.hugging_face import build

pytest.importorskip("transformers", reason="transformers is not installed")

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 20}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """An attempt to reach another machine fails the test, and not as an error that the library may swallow."""

    def refuse(*_):
        pytest.fail("a connection was attempted")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A classifier of 3 classes with weights of its own."""
    place = tmp_path_factory.mktemp("bert")
    cafenet.load_model("hf:BertForSequenceClassification", num_classes=3, **TINY).save_pretrained(place)
    return place


@pytest.mark.parametrize("name", ["hf:bert", "hf:BertConfig", "hf:BertModel"])
def test_a_type_a_config_and_a_class_give_the_same_network(name: str):
    model = cafenet.load_model(name, **TINY)
    assert type(model).__name__ == "BertModel"
    assert model.config.hidden_size == 16


def test_an_architecture_is_an_option():
    model = cafenet.load_model("hf:bert", architecture="BertForMaskedLM", **TINY)
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 20)


def test_a_directory_brings_its_class_and_its_weights(saved: Path):
    from transformers import BertForSequenceClassification

    model = cafenet.load_model(f"hf:{saved}")
    assert type(model) is BertForSequenceClassification
    expected = BertForSequenceClassification.from_pretrained(saved).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_a_directory_without_weights_gives_fresh_ones(saved: Path, tmp_path: Path):
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    model = cafenet.load_model(f"hf:{tmp_path}", num_hidden_layers=1)
    assert type(model).__name__ == "BertForSequenceClassification"
    assert len(model.bert.encoder.layer) == 1
    assert model.config.num_labels == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hf:bert-base-uncased", {}, "nothing is downloaded"),
        ("hf:no/such/model", {}, "nothing is downloaded"),
        ("hf:./nowhere", {}, "nothing is downloaded"),
        ("hf:BertForMaskedM", {}, "did you mean BertForMaskedLM"),
        ("hf:bert", {"hiden_size": 16}, "has no option 'hiden_size'; did you mean hidden_size"),
        ("hf:bert", {"architecture": "BertForNothing"}, "architecture of hf:bert must be a class of models"),
        ("hf:bert", {"hidden_size": 15, "num_attention_heads": 2}, "could not be built"),
    ],
)
def test_a_mistake_is_one_line(name: str, options: dict[str, object], message: str):
    with pytest.raises(ModelNameError, match=message) as raised:
        cafenet.load_model(name, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["{", "{}", '{"model_type": "nothing"}', '{"auto_map": {"AutoConfig": "x.Y"}}'])
def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path, content: str):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelNameError, match=r"config of .* must be readable") as raised:
        cafenet.load_model(f"hf:{tmp_path}")
    assert "\n" not in str(raised.value)


def test_an_unknown_option_of_a_directory_is_refused(saved: Path):
    with pytest.raises(ModelNameError, match="has no option 'hidden'"):
        cafenet.load_model(f"hf:{saved}", hidden=3)


SMALL_IMAGES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
DECODER = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 34}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
WHISPER = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 20, "max_source_positions": 8}
WHISPER |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
WHISPER |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        ("hf:BertModel", TINY, {"input_ids": (1, 128)}),
        ("hf:GPT2LMHeadModel", DECODER, {"input_ids": (1, 32)}),
        ("hf:T5ForConditionalGeneration", T5, {"input_ids": (1, 128), "decoder_input_ids": (1, 128)}),
        ("hf:ViTForImageClassification", {**SMALL_IMAGES, "image_size": 32}, {"pixel_values": (1, 3, 32, 32)}),
        (
            "hf:WhisperForConditionalGeneration",
            WHISPER | {"num_mel_bins": 4},
            {"input_features": (1, 4, 16), "decoder_input_ids": (1, 128)},
        ),
    ],
)
def test_example_inputs_are_what_the_model_takes(name: str, options: dict[str, object], shapes: dict[str, object]):
    model = cafenet.load_model(name, **options)
    inputs = example_inputs_of(name, model)
    assert {key: tuple(value.shape) for key, value in inputs.items() if isinstance(value, torch.Tensor)} == shapes
    assert cafenet.trace(model, inputs).groups


def test_inspect_prices_a_text_of_the_given_length(saved: Path, capsys):
    """2 layers of 4 * 16 * 16 + 2 * 16 * 24 a token, attention of 8 tokens to 8; the pooler and 3 classes."""
    assert main(["inspect", f"hf:{saved}", "--input", "8", "--json"]) in (0, None)
    document = json.loads(capsys.readouterr().out)
    assert document["input"] == [8]
    assert document["flops"] == 2 * (8 * (1024 + 768) + 2 * 8 * 8 * 16) + 256 + 48
    assert document["versions"]["transformers"]


def test_slim_model_in_a_directory(tmp_path: Path):
    """The config keeps its class and the full sizes; the slim file beside it brings the widths back."""
    model, inputs = build("bert")
    space = cafenet.trace(model, inputs, head_sizes=True)
    widths = {group.name: max(group.channels // group.divisor // 2, 1) * group.divisor for group in space.groups}
    slim = space.extract(widths).eval()
    save_pretrained(slim, tmp_path / "slim-bert")
    loaded = cafenet.load_model(f"hf:{tmp_path / 'slim-bert'}")
    assert type(loaded) is type(model)
    assert type(loaded.config) is type(model.config)
    assert loaded.config.hidden_size == model.config.hidden_size
    assert torch.equal(loaded(**inputs).logits, slim(**inputs).logits)
    save_pretrained(loaded, tmp_path / "again")
    assert torch.equal(cafenet.load_model(f"hf:{tmp_path / 'again'}")(**inputs).logits, slim(**inputs).logits)


def test_only_slim_models_are_kept_so(tmp_path: Path):
    model, inputs = build("bert")
    with pytest.raises(SlimFileError, match="takes a slim model of transformers"):
        save_pretrained(model, tmp_path / "whole")
    model.save_pretrained(tmp_path / "other")
    slim = cafenet.trace(model, inputs).extract()
    with pytest.raises(SlimFileError, match="must hold no weights of another model"):
        save_pretrained(slim, tmp_path / "other")
