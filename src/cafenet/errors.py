"""Errors and warnings that tell the user what to change. Any other exception that the package raises is a bug."""


class CafeNetError(Exception):
    """Base of all errors that tell the user what to change.

    The message says what must hold, what was found, and what to do.

    Examples:
        >>> from cafenet.common.statistics import compare_paired
        >>> compare_paired([0.93], [0.91], confidence=2)
        Traceback (most recent call last):
            ...
        cafenet.errors.CafeNetError: `0 < confidence < 1` must hold, but got 2
    """


class TraceError(CafeNetError):
    """The model, its example inputs or the options of `trace` do not fit together."""


class WidthError(CafeNetError):
    """Widths or channels are not part of the width space."""


class BinError(CafeNetError):
    """Bins, or ways to share weights between widths, do not fit the width space."""


class BudgetError(CafeNetError):
    """A budget cannot be read, measured or met."""


class ScoringError(CafeNetError):
    """Widths cannot be scored on this data with this metric."""


class StoreError(CafeNetError):
    """The store of scored widths cannot be reached, or belongs to another supernet."""


class TrainingError(CafeNetError):
    """A model or supernet cannot be trained on this data with these options."""


class CheckpointError(CafeNetError):
    """A checkpoint cannot be read, or belongs to another run."""


class SlimFileError(CafeNetError):
    """A saved slim model cannot be read, or belongs to another model."""


class ModelNameError(CafeNetError):
    """A model name does not lead to an `nn.Module`."""


class DataError(CafeNetError):
    """A data set is missing, damaged or not what the model can be trained on."""


class RecipeError(CafeNetError):
    """A recipe or a flag cannot be read, or does not fit the run."""


class RunFileError(CafeNetError):
    """A file of a run directory is damaged, is missing, or belongs to another run."""


class ExportError(CafeNetError):
    """A model cannot be written in a format, or differs after writing."""


class DeploymentError(ExportError):
    """A runtime that files are exported for is missing, or a device that gets them does not answer."""


class CafeNetWarning(UserWarning):
    """Something that the user should know about a result; the command line prints it as one line."""


def first_line(error: BaseException) -> str:
    """Shortens the message of an error to its first line.

    Args:
        error: Any exception.

    Returns:
        The first line of the message, or the name of the exception's class if the message is empty.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
