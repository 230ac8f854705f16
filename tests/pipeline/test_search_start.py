"""A second search in a directory goes on only with the model and the data of the first one."""

import warnings

import pytest
import torch
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import CafeNetWarning, CheckpointError, StoreError, TrainingError
from tests.helpers.small_training import assert_same_state, batch, built, config, data
from tests.pipeline.test_search import found


def relabelled(size: int, seed: int) -> TensorDataset:
    """The same images, with labels that are one higher."""
    images, labels = batch(size, seed)
    return TensorDataset(images, (labels + 1) % 4)


def test_the_same_model_and_data_go_on_without_a_word(tmp_path):
    first = found(directory=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = found(directory=tmp_path)
    assert_same_state(again.model, first.model)


def test_another_trained_model_is_refused(tmp_path):
    found(directory=tmp_path, trained=True)
    with pytest.raises(TrainingError, match="must hold a search of this model, but the one that it holds began with"):
        found(built(seed=5), directory=tmp_path, trained=True)


def test_fresh_weights_go_on_with_those_of_the_checkpoint_and_a_warning(tmp_path):
    first = found(directory=tmp_path)
    with pytest.warns(CafeNetWarning, match="began with other weights than those given now; these have no effect"):
        again = found(built(seed=5), directory=tmp_path)
    assert again.widths == first.widths


@pytest.mark.parametrize("train_data", [relabelled(64, 1), data(64, 7)], ids=["labels", "images"])
def test_other_training_data_of_the_same_size_are_refused(train_data, tmp_path):
    found(directory=tmp_path)
    with pytest.raises(CheckpointError, match=r"model.pt belongs to a training on other data"):
        found(directory=tmp_path, train_data=train_data)


def test_other_validation_data_of_the_same_size_are_refused(tmp_path):
    found(directory=tmp_path)
    with pytest.raises(StoreError, match=r"validation was .*, is "):
        found(directory=tmp_path, val_data=relabelled(64, 2))


class Restless(TensorDataset):
    """Images with noise that no seed repeats."""

    noise = torch.Generator().manual_seed(0)

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image + torch.randn(image.shape, generator=self.noise), label


def test_data_that_differ_from_read_to_read_are_not_compared(tmp_path):
    examples = Restless(*batch(32, 1))
    for epochs in (1, 1):
        cafenet.train_model(
            built(), torch.zeros(1, 3, 4, 4), examples, config(epochs=epochs), directory=tmp_path, quiet=True
        )
