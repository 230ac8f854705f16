"""Every mistake that a user can make ends in one of these; anything else that is raised is a bug."""


class CafeNetError(Exception):
    """Base of all errors that tell the user what to change."""


class TraceError(CafeNetError):
    """The model, its example inputs or the options of `trace` do not fit together."""


class WidthError(CafeNetError):
    """Widths or channels are not part of the width space."""


class BinError(CafeNetError):
    """Bins, or ways to share weights between widths, that do not fit the width space."""


class BudgetError(CafeNetError):
    """A budget that cannot be read, measured or met."""


class ScoringError(CafeNetError):
    """Widths cannot be scored on this data with this metric."""


class StoreError(CafeNetError):
    """The store of scored widths cannot be reached, or holds those of another supernet."""


class TrainingError(CafeNetError):
    """The supernet cannot be trained on this data with these options."""


class CheckpointError(CafeNetError):
    """A checkpoint cannot be read, or belongs to another run."""


class SlimFileError(CafeNetError):
    """A saved slim model cannot be read, or belongs to another model."""


class ModelNameError(CafeNetError):
    """A model name does not lead to an `nn.Module`."""


class DataError(CafeNetError):
    """A data set is missing, damaged or not what the model can be trained on."""


class RecipeError(CafeNetError):
    """A recipe or a flag that cannot be read, or that does not fit the run."""


class RunFileError(CafeNetError):
    """A file of a run directory that is damaged, missing or another run's."""


class ExportError(CafeNetError):
    """A model that cannot be written in a format, or that differs after writing."""


def first_line(error: BaseException) -> str:
    """What an error says, in short; the name of its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
