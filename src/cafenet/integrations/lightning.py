"""A supernet in the training loop of Lightning.

    module = SupernetModule(MyLightningModule(), example_inputs, budget="50%")
    lightning.Trainer(max_epochs=30).fit(module, train_loader)
    result = module.supernet.search(train, validation)

Lightning's own features do the rest: precision, checkpoints and resumption, gradient accumulation, loggers, callbacks
and its strategy `ddp`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.common.extras import install
from cafenet.errors import TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.pipeline.own_loop import Supernet

try:
    from lightning.pytorch import LightningModule
except ImportError as missing:
    raise TrainingError(f"lightning must be installed, but is not; {install('lightning')}") from missing


class SupernetModule(LightningModule):
    """The LightningModule that trains a supernet: a sampled width and its best candidate in every training step.

    Example:
        >>> import lightning, torch
        >>> from torch import nn
        >>> from cafenet.integrations.lightning import SupernetModule
        >>> model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> module = SupernetModule(
        ...     model,
        ...     torch.zeros(1, 6),
        ...     budget="50%",
        ...     optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        ... )
        >>> module.supernet.flops_band
        (0.35, 0.65)
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        loss_fn: str | LossFunction = "cross_entropy",
        *,
        optimizer: Callable[[Iterable[nn.Parameter]], Any] | None = None,
        **options: Any,
    ) -> None:
        """Build the supernet.

        Args:
            model: A LightningModule whose forward is the model, or a plain module; it is not changed.
            example_inputs: Inputs that the model is traced with, or its width space, as in `cafenet.Supernet`.
            loss_fn: The loss, by name or as a function of (output, target) that returns the mean loss.
            optimizer: Function of the parameters that returns what `configure_optimizers` returns. A LightningModule
                needs none, because its own `configure_optimizers` is used.
            **options: Further options of `cafenet.Supernet`, such as `budget` and `seed`.

        Raises:
            CafeNetError: If the model cannot be a supernet, for example because its forward is not the model, or no
                optimiser is known.
        """
        super().__init__()
        if isinstance(model, LightningModule):
            _check_forward(model, example_inputs)
        elif optimizer is None:
            raise TrainingError(
                f"{type(model).__name__} is no LightningModule, so its optimiser must be given; "
                "say optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
            )
        self.supernet = Supernet(model, example_inputs, **options)
        """The supernet, for `search` and for the widths of your choice."""
        self._loss_fn, self._optimizer = loss_fn, optimizer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the full network.

        Args:
            *args: Positional arguments of the model.
            **kwargs: Keyword arguments of the model.

        Returns:
            The output of the model.
        """
        return self.supernet.model(*args, **kwargs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Train a sampled width by its best candidate, and log its loss as `train_loss`.

        Args:
            batch: A pair (inputs, target), or a dict with `labels`.
            batch_idx: Number of the batch, which has no effect.

        Returns:
            The loss.
        """
        step = self.supernet.step(batch, self._loss_fn)
        self.log("train_loss", step.loss.detach(), batch_size=1)
        return step.loss

    def configure_optimizers(self) -> Any:
        """Return the optimisers of the supernet's weights.

        Returns:
            The value of the user's function, or of the `configure_optimizers` of the user's LightningModule.
        """
        if self._optimizer is not None:
            return self._optimizer(self.supernet.parameters())
        inner = self.supernet.model
        assert isinstance(inner, LightningModule)
        inner.trainer = self.trainer  # schedules ask it for the number of steps
        try:
            return inner.configure_optimizers()
        finally:
            inner.trainer = None


def _check_forward(module: LightningModule, example_inputs: Any) -> None:
    """Refuse a LightningModule whose forward is not the model, from which no width space could come."""
    name = type(module).__name__
    remedy = f"let {name}.forward return the output of the network, or pass the network itself with optimizer=..."
    if type(module).forward is LightningModule.forward:
        raise TrainingError(f"the forward of a LightningModule must be the model, but {name} has none; {remedy}")
    if not isinstance(example_inputs, Tensor):
        return
    was_training = module.training
    with torch.no_grad():
        output = module.eval()(example_inputs.to(module.device))
    module.train(was_training)
    if isinstance(output, Tensor) and output.ndim == 0:
        raise TrainingError(
            f"the forward of a LightningModule must be the model, but that of {name} returns one number, as a loss "
            f"does; {remedy}"
        )
