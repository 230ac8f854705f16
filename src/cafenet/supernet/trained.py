"""A supernet from the checkpoint of its finished training, without the data and options that it was trained with."""

from pathlib import Path

from cafenet.errors import CheckpointError
from cafenet.space.importance import restore_constants
from cafenet.supernet.supernet import Supernet
from cafenet.training.checkpoint import load_checkpoint, restoring


def load_trained(supernet: Supernet, path: Path) -> None:
    """Load the weights of a finished training into a supernet.

    Args:
        supernet: A supernet of the same model and options; it is changed in place.
        path: The checkpoint, usually `supernet.pt`.

    Raises:
        CheckpointError: If the checkpoint cannot be read, is of another model, or stands before its last step.
    """
    content = load_checkpoint(path)
    with restoring(path):
        step, last = int(content["step"]), int(content["identity"]["steps"])
        supernet.model.load_state_dict(content["model"])
        restore_constants(supernet.model, content)
        if "order" in content:
            supernet.order = content["order"].numpy()
    if step < last:
        raise CheckpointError(
            f"the checkpoint {path} must stand at the end of its training, but stands at step {step} of {last}; copy "
            "it again when the training has ended"
        )
