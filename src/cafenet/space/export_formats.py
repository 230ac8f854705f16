"""The formats in which a slim model can be exported, by the endings of their files."""

FORMATS = ("pt", "pt2", "onnx")
