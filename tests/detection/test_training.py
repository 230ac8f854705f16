"""The training of detectors: the paper's rates, and a stopped run that continues bit for bit."""

import json
import os
import signal
from dataclasses import replace

import pytest
import torch

from cafenet.detection import DetectionTraining, Pictures, build_detector, train_detector
from cafenet.errors import CheckpointError, TrainingError
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig
from tests.helpers.cells import SMALL, pictures, tiny_net

TINY = DetectionTraining(
    epochs=2, batch_size=2, optimizer=OptimizerConfig(lr=0.5), log_every=1, checkpoint_every=100, channels_last=True
)


def detector(framework: str = "faster_rcnn") -> torch.nn.Module:
    torch.manual_seed(0)
    return build_detector(tiny_net(), 2, replace(SMALL, framework=framework))


def log(place):
    return [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]


def test_the_defaults_are_the_papers():
    config = DetectionTraining()
    assert (config.epochs, config.optimizer.name, config.optimizer.lr) == (12, "SGD", 0.08)
    assert (config.schedule.name, config.schedule.milestones, config.schedule.gamma) == ("step", (8, 11), 0.1)
    assert config.scale_lr


def test_the_rate_follows_the_batch_and_drops_when_it_should(tmp_path):
    config = replace(
        TINY, epochs=3, optimizer=OptimizerConfig(lr=0.08), schedule=ScheduleConfig("step", milestones=(1, 2))
    )
    train_detector(detector(), pictures(tmp_path, 4), config, directory=tmp_path, quiet=True)
    rate = 0.08 * 2 / 256
    assert [each["lr"] for each in log(tmp_path)] == pytest.approx([rate] * 2 + [rate / 10] * 2 + [rate / 100] * 2)
    plain = replace(config, epochs=1, scale_lr=False, schedule=ScheduleConfig("constant", warmup_epochs=1))
    train_detector(detector(), pictures(tmp_path, 4), plain, directory=tmp_path / "plain", quiet=True)
    assert [each["lr"] for each in log(tmp_path / "plain")] == [0.0, 0.04]  # half-way through the warm-up


def test_the_log_holds_every_loss(tmp_path):
    result = train_detector(detector("retinanet"), pictures(tmp_path, 4), TINY, directory=tmp_path, quiet=True)
    lines = log(tmp_path)
    assert (result.steps, result.finished) == (4, True)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert line["loss"] == pytest.approx(line["classification"] + line["bbox_regression"])


@pytest.mark.parametrize("framework", ["faster_rcnn", "retinanet"])
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path, framework):
    found = pictures(tmp_path, 6, flip=True)
    whole, parts = detector(framework), detector(framework)
    train_detector(whole, found, TINY, directory=tmp_path / "whole", quiet=True)
    train_detector(parts, found, TINY, directory=tmp_path / "parts", quiet=True, max_steps=2)
    torch.rand(7)  # other random numbers in between
    again = detector(framework)
    result = train_detector(again, found, TINY, directory=tmp_path / "parts", quiet=True)
    assert result.steps == 6
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    timeless = [
        [{key: value for key, value in line.items() if key != "images_per_second"} for line in log(tmp_path / each)]
        for each in ("whole", "parts")
    ]
    assert timeless[0] == timeless[1]


class Interrupted(Pictures):
    """Pictures during which the process is asked to end."""

    num_read = 0

    def __getitem__(self, index):
        self.num_read += 1
        if self.num_read == 12 + 3:  # all twice for the sketch, and the second step's first picture
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__getitem__(index)


def test_sigterm_finishes_the_step_and_saves(tmp_path):
    plain = pictures(tmp_path, 6)
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM after step 2; start again"):
        train_detector(detector(), Interrupted(plain.data, plain.scaling), TINY, directory=tmp_path / "cut", quiet=True)
    assert torch.load(tmp_path / "cut" / "detector.pt", weights_only=True)["step"] == 2
    again, whole = detector(), detector()
    train_detector(again, plain, TINY, directory=tmp_path / "cut", quiet=True)
    train_detector(whole, plain, TINY, quiet=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True))


def test_accumulated_steps_count_their_images(tmp_path):
    config = replace(TINY, epochs=1, accumulate=3)
    train_detector(detector(), pictures(tmp_path, 6), config, directory=tmp_path, quiet=True)
    assert [each["lr"] for each in log(tmp_path)] == [0.5 * 6 / 256]


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    found = pictures(tmp_path, 4)
    train_detector(detector(), found, TINY, directory=tmp_path, quiet=True)
    other = replace(TINY, optimizer=OptimizerConfig(lr=0.1))
    with pytest.raises(CheckpointError, match=r"config\.optimizer\.lr was 0\.5, is 0\.1"):
        train_detector(detector(), found, other, directory=tmp_path, quiet=True)


def test_mistakes(tmp_path):
    found = pictures(tmp_path, 4)
    with pytest.raises(TrainingError, match=r"epochs must be a number above 0, but is 0; batch_size must be"):
        train_detector(detector(), found, replace(TINY, epochs=0, batch_size=-1))
    with pytest.raises(TrainingError, match="must fill one step of 1 x 8 examples, but has 4"):
        train_detector(detector(), found, replace(TINY, batch_size=8))
    with pytest.raises(TrainingError, match=r"the loss must stay finite, but is .*; lower train\.optimizer\.lr"):
        train_detector(
            detector("retinanet"), found, replace(TINY, epochs=20, optimizer=OptimizerConfig(lr=1e9)), quiet=True
        )
