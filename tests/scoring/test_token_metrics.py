"""Metrics of tokens: hand arithmetic, and the models' own losses."""

import math
from types import SimpleNamespace

import pytest
import torch

import cafenet
from cafenet.errors import ScoringError
from cafenet.scoring.metrics import metric_by_name, shown_score
from cafenet.scoring.token_metrics import TokenMetric, predicts_next


def scores(*probabilities: float) -> torch.Tensor:
    """One text whose tokens give word 0 these probabilities, and word 1 the rest."""
    return torch.tensor([[[p, 1 - p] for p in probabilities]]).log()


def test_perplexity_by_hand():
    """1/2 and 1/8 are as bad as 1/4 twice; the token with the label -100 does not count."""
    labels = torch.tensor([[0, 0, -100]])
    value = TokenMetric("perplexity")(scores(0.5, 0.125, 0.9), labels)
    assert value.tolist() == pytest.approx([-math.log(4)])
    assert shown_score("perplexity", float(value)) == "perplexity 4.0000"
    assert shown_score("accuracy", 0.5) == "accuracy 0.5000"


def test_token_accuracy_by_hand():
    labels = torch.tensor([[0, 1, 0, -100]])
    assert TokenMetric("token_accuracy")(scores(0.9, 0.8, 0.7, 0.6), labels).tolist() == pytest.approx([2 / 3])


def test_a_decoder_is_compared_with_the_next_token():
    """Scores of token 0 belong to label 1, those of token 1 to label 0, and the last ones to nothing."""
    labels = torch.tensor([[1, 1, 0]])
    assert TokenMetric("token_accuracy", is_next=True)(scores(0.1, 0.9, 0.1), labels).tolist() == [1.0]


TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 20}
MODELS = {
    "BertForMaskedLM": (TINY, False),
    "BertLMHeadModel": (TINY | {"is_decoder": True}, True),
    "GPT2LMHeadModel": ({"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20}, True),
    "LlamaForCausalLM": (TINY, True),
    "T5ForConditionalGeneration": (
        {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
        | {"decoder_start_token_id": 0},
        False,
    ),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_the_mean_over_tokens_is_minus_the_models_own_loss(name: str):
    pytest.importorskip("transformers", reason="transformers is not installed")
    options, is_next = MODELS[name]
    torch.manual_seed(0)
    model = cafenet.load_model(f"hf:{name}", **options).eval()
    assert predicts_next(model) is is_next
    tokens = torch.randint(3, 20, (2, 6))
    labels = tokens.masked_fill(torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]).bool(), -100)
    with torch.no_grad():
        output = model(input_ids=tokens, labels=labels)
    sums, counts = metric_by_name("perplexity", "model", model).sums(output, labels)
    assert float(sums.sum() / counts.sum()) == pytest.approx(-float(output.loss), rel=1e-5)
    found = cafenet.evaluate(model, [{"input_ids": tokens, "labels": labels}])
    assert found["perplexity"] == pytest.approx(math.exp(float(output.loss)), rel=1e-5)
    assert (found["num_tokens"], found["num_examples"]) == (int(counts.sum()), 2)
    assert torch.equal(metric_by_name("negative_loss", "model", model)(output, labels), sums / counts)


def test_negative_loss_of_classes_with_the_models_own_loss():
    output, labels = SimpleNamespace(logits=torch.tensor([[1.0, 1.0], [0.0, 0.0]])), torch.tensor([0, 1])
    values = metric_by_name("negative_loss", "model")(output, labels)
    assert values.tolist() == pytest.approx([-math.log(2)] * 2)


@pytest.mark.parametrize(
    ("output", "labels", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), r"but got \[2, 3\] and \[2\]"),
        (torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.long), r"but got \[2, 3, 5\] and \[2, 4\]"),
        (torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.int32), r"\[2, 3\] of torch.int32"),
        ("text", {}, "but got str and dict"),
        (torch.zeros(1, 3, 5), torch.full((1, 3), -100), "every example must have a label other than -100"),
    ],
)
def test_what_does_not_fit_is_one_line(output: object, labels: object, message: str):
    with pytest.raises(ScoringError, match=message):
        TokenMetric("perplexity")(output, labels)


def test_a_label_that_is_no_word_is_refused():
    logits, labels = torch.zeros(1, 3, 5), torch.tensor([[0, 7, -100]])
    model = torch.nn.Identity()
    with pytest.raises(ScoringError, match="labels of the evaluation data must lie in 0 to 4"):
        cafenet.evaluate(model, [(logits, labels)])
