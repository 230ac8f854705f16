"""Commands that install the packages that only some parts of CafeNet need."""


def install(extra: str) -> str:
    """Return the command that installs an extra, for a message.

    Args:
        extra: Name of the extra in pyproject.toml, for example "vision".

    Returns:
        The words, which say where the command works.

    Example:
        >>> from cafenet.common.extras import install
        >>> install("onnx")
        "run, in the checkout of CafeNet: pip install -c constraints.txt '.[onnx]'"
    """
    return f"run, in the checkout of CafeNet: pip install -c constraints.txt '.[{extra}]'"
