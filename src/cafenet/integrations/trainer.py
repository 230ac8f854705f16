"""A supernet in the `Trainer` of Hugging Face's transformers.

supernet = cafenet.Supernet(model, example_inputs, budget="50%")
trainer = SupernetTrainer(supernet, args, train_dataset=train)
trainer.train()
result = supernet.search(train, validation, loss="model", metric="token_accuracy")
"""

import inspect
from typing import Any

from torch import Tensor, nn

from cafenet.common.extras import install
from cafenet.errors import CheckpointError, TrainingError
from cafenet.modules.batches import LossFunction, pair_of
from cafenet.supernet.supernet import Supernet
from cafenet.training.losses import loss_by_name

try:
    import accelerate  # noqa: F401  # without it, Trainer fails later
    from transformers import Trainer, TrainingArguments
except ImportError as missing:
    raise TrainingError(
        f"transformers and accelerate must be installed, but are not; {install('transformers,accelerate')}"
    ) from missing


class SupernetTrainer(Trainer):
    """A `Trainer` whose training step takes a sampled width of a supernet and its best candidate.

    Evaluation runs the full network. Checkpoints hold the supernet, so `resume_from_checkpoint=True` continues exactly.

    Example:
        >>> import tempfile, torch, cafenet
        >>> from torch import Tensor, nn
        >>> from transformers import TrainingArguments
        >>> from cafenet.integrations.trainer import SupernetTrainer
        >>> model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> supernet = cafenet.Supernet(model, torch.zeros(1, 6), budget="50%")
        >>> args = TrainingArguments(tempfile.mkdtemp(), report_to=[], use_cpu=True)
        >>> SupernetTrainer(supernet, args, loss="cross_entropy").supernet is supernet
        True
    """

    def __init__(
        self,
        supernet: Supernet,
        args: TrainingArguments | None = None,
        *further: Any,
        loss: str | LossFunction = "model",
        **options: Any,
    ) -> None:
        """Check that the supernet can be trained, and prepare a `Trainer`.

        Args:
            supernet: The supernet to train.
            args: Arguments of the training.
            *further: Further positional arguments of `Trainer`.
            loss: The loss, by name or as a function of (output, target); "model" is the one in the model's own output.
            **options: Further options of `Trainer`.

        Raises:
            TrainingError: If the model is not a supernet, or the arguments ask for gradient checkpointing.
        """
        if not isinstance(supernet, Supernet):
            raise TrainingError(
                f"SupernetTrainer trains a supernet, but got {type(supernet).__name__}; give it "
                "cafenet.Supernet(model, example_inputs)"
            )
        if any(getattr(args, name, False) for name in ("gradient_checkpointing", "activation_checkpointing")):
            raise TrainingError(
                "a Trainer cannot switch on gradient checkpointing of a supernet, which is no model of transformers; "
                "leave it out of the TrainingArguments, and call gradient_checkpointing_enable() of the model, with "
                "use_reentrant=False, before the supernet is made"
            )
        self.supernet = supernet
        """The supernet, whatever the `Trainer` has wrapped around it."""
        self._loss = loss_by_name(loss) if isinstance(loss, str) else loss
        super().__init__(supernet, args, *further, **options)
        self.model_accepts_loss_kwargs = False  # so that losses of accumulated batches are averaged here
        self.label_names = self.label_names or ["labels"]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of a step of the supernet; in evaluation, that of the full network.

        Args:
            model: The supernet as the `Trainer` wrapped it.
            inputs: A dict batch.
            return_outputs: Whether the outputs are asked for, as in evaluation.
            num_items_in_batch: Number of items in all accumulated batches, which has no effect.

        Returns:
            The loss, or the loss and the outputs.

        Raises:
            TrainingError: If the batch is neither a dict nor a pair.
        """
        if model.training and not return_outputs:
            return self.supernet.step(inputs, self._loss).loss
        pair = pair_of(inputs)
        if pair is None:
            raise TrainingError(f"a batch must be a pair (inputs, target) or a dict, but got {type(inputs).__name__}")
        outputs = self.supernet(pair[0])
        loss = self._loss(outputs, pair[1])
        return (loss, outputs) if return_outputs else loss

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """Write a checkpoint; tied weights are written once, since the format refuses a tensor with two names."""
        super()._save(output_dir, _without_aliases(self.supernet.state_dict() if state_dict is None else state_dict))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Refuse a checkpoint of another model; only further names of tied weights may be missing."""
        own = set(_without_aliases(self.supernet.state_dict()))
        wrong = sorted(own & set(load_result.missing_keys)) + sorted(load_result.unexpected_keys)
        if wrong:
            raise CheckpointError(
                f"a checkpoint must belong to a supernet of the same model, but differs in {', '.join(wrong[:3])}; "
                "give another output_dir, or do not resume"
            )

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the columns that the user's model takes; the supernet itself takes whatever its model does."""
        if self._signature_columns is None:
            names = list(inspect.signature(self.supernet.model.forward).parameters)
            columns: Any = [*names, "label", "label_ids", *self.label_names]
            self._signature_columns = columns


def _without_aliases(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict with one name, the first, for each tensor."""
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    return {name: tensor for name, tensor in state.items() if first[tensor.data_ptr()] == name}
