"""A search on models of transformers with dict batches, from tokens to a slim model that is saved and exported."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import cafenet
from cafenet.errors import CafeNetError, ScoringError, TrainingError
from cafenet.modules.batch_norm import has_statistics
from cafenet.pipeline.chance import against_chance
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import optimizer_for
from cafenet.pipeline.trained_model import judge
from cafenet.scoring.examples import hold_examples
from cafenet.training.distillation import DistillConfig

pytest.importorskip("transformers", reason="transformers is not installed")

NUM_TOKENS, NUM_WORDS = 8, 20
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": NUM_TOKENS}
LLAMA = {**BERT, "num_key_value_heads": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
SMALL = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4), stages=cafenet.StagesConfig())
ADAM = cafenet.TrainConfig(epochs=4, batch_size=16, optimizer=cafenet.OptimizerConfig(name="AdamW", lr=0.01))

ADAM_LONG = cafenet.TrainConfig(epochs=10, batch_size=16, optimizer=cafenet.OptimizerConfig(name="AdamW", lr=0.01))
ADAM_SHORT = cafenet.TrainConfig(epochs=0.25, batch_size=16)


class Texts(Dataset[dict[str, Tensor]]):
    """Texts that count upwards from a random word; a class says whether they count in ones or in twos."""

    def __init__(self, kind: str, size: int = 64, leave_out: str = "") -> None:
        generator = torch.Generator().manual_seed(size)
        step = torch.arange(size) % 2
        start = torch.randint(3, 6, (size, 1), generator=generator)
        tokens = start + torch.arange(NUM_TOKENS) * (step + 1)[:, None]
        lengths = torch.randint(4, NUM_TOKENS + 1, (size, 1), generator=generator)
        mask = (torch.arange(NUM_TOKENS) < lengths).long()
        labels = step if kind == "classes" else tokens.masked_fill(mask == 0, -100)
        self.columns = {"input_ids": tokens * mask, "attention_mask": mask, "labels": labels}
        self.columns.pop(leave_out, None)

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {key: column[index] for key, column in self.columns.items()}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    options: dict[str, Any] = {"BertForSequenceClassification": BERT, "BertForMaskedLM": BERT, "GPT2LMHeadModel": GPT2}
    model: nn.Module = cafenet.load_model(f"hf:{name}", vocab_size=NUM_WORDS, **options.get(name, LLAMA))
    return model


def search(name: str, kind: str, **options: Any) -> cafenet.SearchResult:
    arguments = {"train": ADAM, "loss": "model", "options": SMALL, "quiet": True, **options}
    return cafenet.search(build(name), Texts(kind), Texts(kind, 32), arguments.pop("budget", "70%"), **arguments)


def test_a_classifier_from_dict_batches(tmp_path: Path):
    """The budget holds, the slim model is better than chance, and comes back from its file; ONNX and pt2 agree."""
    before = build("BertForSequenceClassification")
    result = search("BertForSequenceClassification", "classes", finetune=ADAM_LONG)
    assert "labels" not in result.example_inputs
    assert result.costs["flops"] <= 0.7 * result.space.flops()
    assert cafenet.evaluate(result.model, Texts("classes", 32))["accuracy"] > 0.75
    result.save(tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", before).eval()
    inputs = result.example_inputs
    assert torch.equal(loaded(**inputs).logits, result.model.eval()(**inputs).logits)
    assert type(loaded).__name__ == "BertForSequenceClassification"
    for ending in ("pt2", "onnx"):
        assert result.export(tmp_path / f"slim.{ending}") < 1e-4


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_a_language_model_from_dict_batches(name: str, tmp_path: Path):
    """The perplexity of the widths falls below that of guessing, and the budget on parameters holds, too."""
    result = search(name, "words", metric="perplexity", budget="70%+80% params", finetune=ADAM)
    assert result.costs["flops"] <= 0.7 * result.space.flops()
    assert result.costs["params"] <= 0.8 * result.space.params()
    assert result.score > -math.log(NUM_WORDS)
    assert f"perplexity {math.exp(-result.score):.4f}" in repr(result)
    found = cafenet.evaluate(result.model, Texts("words", 32))
    assert 1 < found["perplexity"] < NUM_WORDS / 2
    result.save(tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", build(name))
    assert cafenet.evaluate(loaded, Texts("words", 32)) == found


@pytest.fixture(scope="module")
def trained_decoder() -> nn.Module:
    example = {key: value[None] for key, value in Texts("words")[0].items()}
    return cafenet.train_model(build("GPT2LMHeadModel"), example, Texts("words"), ADAM, loss="model", quiet=True)


def of_words(metric: Any) -> Job:
    return Job(train_data=Texts("words"), val_data=Texts("words", 32), loss="model", metric=metric)


@pytest.mark.parametrize("metric", ["perplexity", "token_accuracy", "negative_loss"])
def test_a_trained_language_model_and_a_fresh_one_are_told_apart(trained_decoder: nn.Module, metric: str, tmp_path):
    """Chance is the frequency of words; a fresh model is worse than that."""
    verdict = judge(trained_decoder, of_words(metric), tmp_path / "one", None)
    assert verdict.is_trained, verdict.sentence
    fresh = judge(build("GPT2LMHeadModel"), of_words(metric), tmp_path / "two", None)
    assert not fresh.is_trained, fresh.sentence


def test_chance_of_tokens_is_the_frequency_of_words_that_follow():
    """By hand: labels 1 1 2 | 1 2 2 of a decoder, whose first ones follow nothing; 1 2 | 2 2 are left."""
    data = torch.tensor([[1, 1, 2], [1, 2, 2]])
    held = hold_examples([{"input_ids": data, "labels": data}], "validation data")
    found = against_chance(build("GPT2LMHeadModel"), held, of_words("perplexity"))
    assert found.chance == pytest.approx((math.log(1 / 4) + 3 * math.log(3 / 4)) / 4, abs=1e-6)
    assert against_chance(build("GPT2LMHeadModel"), held, of_words("token_accuracy")).chance == pytest.approx(3 / 4)


def test_perplexities_of_the_gain_are_those_of_evaluate(trained_decoder: nn.Module, capfd):
    """In its own unit, where lower is better, of all tokens; the plan counts no examples for statistics."""
    result = cafenet.search(
        trained_decoder,
        Texts("words"),
        Texts("words", 32),
        "60%",
        loss="model",
        metric="perplexity",
        train=ADAM_SHORT,
        options=SMALL,
    )
    said = capfd.readouterr().err
    assert "The model is trained: perplexity " in said
    assert "score about 4 widths on up to 32 examples" in said
    assert result.gain is not None
    before, after = (cafenet.evaluate(model, Texts("words", 32)) for model in (trained_decoder, result.model))
    assert math.exp(-result.gain.before.score) == pytest.approx(before["perplexity"])
    assert math.exp(-result.gain.after.score) == pytest.approx(after["perplexity"])
    text = str(result)
    difference = after["perplexity"] - before["perplexity"]
    assert f"reaches {after['perplexity']:.4g} perplexity" in text
    assert f"({difference:+.4g}, {'worse' if difference > 0 else 'better'})" in text
    assert "A lower perplexity is better." in text


def test_transformers_are_trained_by_adamw_if_nobody_chooses():
    assert optimizer_for(build("LlamaForCausalLM")).name == optimizer_for(build("BertForMaskedLM")).name == "AdamW"
    assert optimizer_for(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).name == "SGD"
    assert optimizer_for(nn.Linear(3, 4)).name == "SGD"


def test_a_masked_language_model_by_token_accuracy():
    result = search("BertForMaskedLM", "words", metric="token_accuracy")
    assert 0 <= result.score <= 1


def test_flops_are_those_of_the_example():
    """A text half as long costs less than half, as attention grows with the square."""
    model, short = build("BertForSequenceClassification"), Texts("classes")[0]["input_ids"][None, :4]
    result = search("BertForSequenceClassification", "classes", train=ADAM_SHORT)
    longer, shorter = result.space.flops(), cafenet.trace(model, {"input_ids": short}).flops()
    assert longer == 2 * (8 * (1024 + 768) + 2 * 8 * 8 * 16) + 256 + 32
    assert shorter == 2 * (4 * (1024 + 768) + 2 * 4 * 4 * 16) + 256 + 32


def pad_to_longest(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What the collators of transformers do: a batch is as long as its longest text."""
    batch = {key: torch.stack([each[key] for each in examples]) for key in examples[0]}
    longest = int(batch["attention_mask"].sum(dim=1).max())
    return {key: value[:, :longest] if value.ndim == 2 else value for key, value in batch.items()}


def test_batches_of_several_lengths_are_scored_as_if_padded_before():
    """A score depends neither on the batches that texts came in nor on how far these were padded."""
    model = build("GPT2LMHeadModel")
    batches = list(DataLoader(Texts("words", 32), 4, collate_fn=pad_to_longest))
    assert len({batch["input_ids"].shape[1] for batch in batches}) > 1
    supernet = cafenet.Supernet(model, cafenet.trace(model, {"input_ids": batches[0]["input_ids"], "use_cache": False}))
    scores = [
        cafenet.search_widths(
            supernet, Texts("words"), data, "70%", metric="perplexity", algorithm=cafenet.RandomSearch(samples=2)
        )[0].score
        for data in (batches, Texts("words", 32))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def own_metric(output: Any, target: Tensor) -> Tensor:
    """The probability of the right class."""
    return output.logits.softmax(dim=1).gather(1, target[:, None]).squeeze(1)


def test_a_metric_of_the_users_own():
    result = search("BertForSequenceClassification", "classes", metric=own_metric, train=ADAM_SHORT)
    assert result.found.metric == "own_metric"
    assert 0 < result.score < 1


def test_distillation_compares_logits():
    options = cafenet.SearchOptions(
        algorithm=cafenet.RandomSearch(samples=4),
        stages=cafenet.StagesConfig(),
        sampling=cafenet.SamplingConfig(distill=DistillConfig()),
    )
    result = search("GPT2LMHeadModel", "words", metric="perplexity", options=options)
    assert result.score > -math.log(NUM_WORDS)


def test_fresh_weights_are_those_of_the_config():
    """A decoder starts from the standard deviation 0.02 of its config, where PyTorch's own tables have 1."""
    result = search(
        "GPT2LMHeadModel", "words", metric="perplexity", train=ADAM_SHORT, finetune=ADAM_SHORT, start="scratch"
    )
    assert float(result.model.transformer.wte.weight.detach().std()) < 0.1


def test_nothing_is_recalibrated_without_batch_norm(monkeypatch):
    from cafenet.scoring.recalibration import PreparedSubnet

    model = build("BertForSequenceClassification")
    assert not has_statistics(model)
    monkeypatch.setattr(PreparedSubnet, "recalibrate", lambda *_, **__: pytest.fail("statistics were recalibrated"))
    search("BertForSequenceClassification", "classes", train=ADAM_SHORT)


@pytest.mark.parametrize(
    ("name", "kind", "options", "error", "message"),
    [
        ("BertForSequenceClassification", "classes", {"metric": "perplexity"}, ScoringError, "needs scores of shape"),
        ("GPT2LMHeadModel", "words", {"metric": "accuracy"}, ScoringError, "pass metric='token_accuracy'"),
        ("GPT2LMHeadModel", "words", {"metric": "perplexities"}, ScoringError, "metric must be 'accuracy'"),
        ("BertForSequenceClassification", "words", {}, ScoringError, "must take the inputs"),
        (
            "BertForSequenceClassification",
            "classes",
            {"train": cafenet.TrainConfig(label_smoothing=0.1)},
            TrainingError,
            "label_smoothing must be 0 for the loss 'model'",
        ),
    ],
)
def test_a_mistake_ends_before_training(
    name: str, kind: str, options: dict[str, Any], error: type[CafeNetError], message: str, monkeypatch
):
    monkeypatch.setattr("cafenet.supernet.trainer.Trainer.run", lambda *_: pytest.fail("training began"))
    with pytest.raises(error, match=message) as raised:
        search(name, kind, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        ("model", TrainingError, "give every batch an entry 'labels', beside input_ids, attention_mask"),
        ("cross_entropy", ScoringError, "no entry 'labels', only input_ids, attention_mask"),
    ],
)
def test_batches_without_labels_end_before_training(loss: str, error: type[CafeNetError], message: str, monkeypatch):
    monkeypatch.setattr("cafenet.supernet.trainer.Trainer.run", lambda *_: pytest.fail("training began"))
    data = Texts("classes", leave_out="labels")
    with pytest.raises(error, match=message):
        cafenet.search(
            build("BertForSequenceClassification"), data, data, "70%", loss=loss, train=ADAM_SHORT, quiet=True
        )


def test_a_model_without_a_loss_of_its_own_is_refused():
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(TrainingError, match="needs a model whose output has a loss, but its Tensor has none"):
        cafenet.search(model, data, data, "70%", loss="model", train=ADAM_SHORT, quiet=True)


def test_lists_of_tokens_are_refused():
    class Rows(Texts):
        def __getitem__(self, index: int) -> Any:
            return {key: column[index].tolist() for key, column in self.columns.items()}

    with pytest.raises(ScoringError, match="the entry 'input_ids' of a batch is a list"):
        cafenet.search(build("GPT2LMHeadModel"), Rows("words"), Rows("words"), "70%", loss="model", quiet=True)
