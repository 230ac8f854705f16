"""int8 files by the quantisers of each ecosystem: onnxruntime.quantization, NNCF for OpenVINO, ExecuTorch's own.

Weights and activations are rounded to 8 bits after training; the ranges of activations come from calibration data.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.errors import CafeNetError, ExportError, first_line
from cafenet.modules.inputs import copied
from cafenet.runtimes.executorch_xnnpack import quiet, require_executorch, write_executorch
from cafenet.runtimes.onnx_runtime import read_onnx, require_onnx, write_onnx
from cafenet.runtimes.open_vino import require_openvino
from cafenet.runtimes.program import exported
from cafenet.runtimes.session import Inputs, needed, tensors_in

Quantiser = Callable[[nn.Module, Sequence[Inputs], Path], None]
"""Writes the int8 file of a model, calibrated on inputs."""


def quantise_onnx(model: nn.Module, calibration: Sequence[Inputs], path: Path) -> None:
    """Write an int8 ONNX file by ONNX Runtime's static quantiser (QDQ, weights per channel).

    Args:
        model: The model in eval mode on the CPU.
        calibration: Inputs of the training set; the shapes of the first are those of the file.
        path: The file.
    """
    require_onnx()
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="cafenet-") as directory:
        plain, ready = Path(directory) / "float.onnx", Path(directory) / "ready.onnx"
        write_onnx(exported(model, calibration[0]), plain)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        session = read_onnx(plain)

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            """Gives the calibration inputs one after the other."""

            def __init__(self) -> None:
                self.rest = iter(calibration)

            def get_next(self) -> dict[str, Any] | None:
                """Return the next inputs by name, or None at the end."""
                inputs = next(self.rest, None)
                return None if inputs is None else session.feed(inputs)

        quantize_static(
            str(ready),
            str(path),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        session.close()


def quantise_openvino(model: nn.Module, calibration: Sequence[Inputs], path: Path) -> None:
    """Write an int8 model of OpenVINO by NNCF's post-training quantisation.

    Args:
        model: The model in eval mode on the CPU.
        calibration: Inputs of the training set; the shapes of the first are those of the file.
        path: The `.xml` file; the weights go into a `.bin` file beside it.
    """
    openvino, nncf = require_openvino(), needed("nncf", "openvino", "int8 for OpenVINO")
    converted = openvino.convert_model(exported(model, calibration[0]))
    arrays = [[tensor.contiguous().numpy() for tensor in tensors_in(inputs)] for inputs in calibration]
    nncf.set_log_level(logging.ERROR)
    quantised = nncf.quantize(converted, nncf.Dataset(arrays), subset_size=len(arrays))
    openvino.save_model(quantised, str(path), compress_to_fp16=False)


def quantise_executorch(model: nn.Module, calibration: Sequence[Inputs], path: Path) -> None:
    """Write an int8 `.pte` file by the quantiser of ExecuTorch's XNNPACK (PT2E of torchao).

    Args:
        model: The model in eval mode on the CPU.
        calibration: Inputs of the training set; the shapes of the first are those of the file.
        path: The file.
    """
    require_executorch()
    with quiet():
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        quantizer = XNNPACKQuantizer()
        quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
        observed = prepare_pt2e(exported(model, calibration[0]).module(), quantizer)
        for inputs in calibration:
            args, kwargs = copied(inputs)
            observed(*args, **kwargs)
        write_executorch(torch.export.export(convert_pt2e(observed), *copied(calibration[0])), path)


QUANTISERS: dict[str, Quantiser] = {
    "onnx": quantise_onnx,
    "openvino": quantise_openvino,
    "executorch": quantise_executorch,
}
"""The quantisers by the names of the formats."""


def require_quantiser(file_format: str) -> None:
    """Import what the quantiser of a format needs.

    Args:
        file_format: Name of a format in `QUANTISERS`.

    Raises:
        DeploymentError: If a package is missing.
    """
    with quiet():
        if file_format == "onnx":
            require_onnx()
            needed("onnxruntime.quantization", "onnx", "int8 for ONNX Runtime")
        elif file_format == "openvino":
            require_openvino()
            needed("nncf", "openvino", "int8 for OpenVINO")
        else:
            require_executorch()
            needed("torchao", "executorch", "int8 for ExecuTorch")


def quantise(file_format: str, model: nn.Module, calibration: Sequence[Inputs], path: Path) -> None:
    """Write the int8 file of a model.

    Args:
        file_format: Name of the format.
        model: The model in eval mode on the CPU.
        calibration: Inputs of the training set.
        path: The file.

    Raises:
        ExportError: If the format has no quantiser, or it cannot quantise the model.
    """
    if file_format not in QUANTISERS:
        raise ExportError(f"quantize='int8' needs a format of {', '.join(QUANTISERS)}, but the format is {file_format}")
    try:
        QUANTISERS[file_format](model, calibration, path)
    except (OSError, CafeNetError):
        raise
    except Exception as error:  # whatever an op does to a quantiser
        raise ExportError(
            f"the quantiser of {file_format} cannot quantise this model: {first_line(error)}; export it without "
            "quantize"
        ) from error
