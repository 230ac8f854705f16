"""The formats in which a slim model can be exported, by the names that `--format` takes; endings go, too."""

FORMATS = ("pt", "pt2", "onnx", "openvino", "executorch")
ENDINGS = {"openvino": "xml", "executorch": "pte"}
"""Endings of the files of formats that are not called like their endings."""
ALIASES = {ending: name for name, ending in ENDINGS.items()}
"""Formats by endings that are not their names."""
QUANTISED = ("onnx", "openvino", "executorch")
"""The formats that have a quantiser."""
