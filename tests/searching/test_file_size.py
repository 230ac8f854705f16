"""Budgets of file size: as people write them, estimated from a few files, and kept by the file of the result."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import BudgetError, DeploymentError
from cafenet.searching.budget import Budget, Cap, costs_in, parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.file_size import FileSizes, file_bytes
from cafenet.searching.latency.correction import Meter, Meters
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.space.bins import Bins, GroupBins, uniform_bins
from cafenet.supernet.build import SupernetConfig, for_capped_costs

IMAGE = torch.zeros(1, 3, 8, 8)


def net(width=64):
    layers = [nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 2))


@pytest.mark.parametrize(
    ("text", "limit"),
    [("500KB", 500_000), ("0.1 mb file", 100_000), ("50% file", 60_000), ("64KiB", 65_536), ("60kb", 60_000)],
)
def test_caps_on_files(text, limit):
    space = cafenet.trace(net(), IMAGE)
    full = 120_000.0 if limit < 120_000 else 1e9
    budget = parse_budget(text, space, full_file_bytes=lambda: full)
    assert budget.caps == (Cap("file_bytes", limit),)
    assert costs_in(text) == {"file_bytes"}
    assert budget.is_measured


@pytest.mark.parametrize("text", ["500 file", "500KB params", "5ms file", "2M file", "-3KB", "3KB latency"])
def test_what_is_no_cap_on_a_file(text):
    with pytest.raises(BudgetError, match="a budget must be"):
        parse_budget(text, cafenet.trace(net(), IMAGE), full_file_bytes=lambda: 1e9)


def test_caps_that_make_no_sense():
    space = cafenet.trace(net(), IMAGE)
    with pytest.raises(BudgetError, match="a relative file size needs a measured full model, but got '50% file'"):
        parse_budget("50% file", space)
    with pytest.raises(BudgetError, match=r"`budget < full model` must hold, but got 2,000,000 bytes and 90,000 bytes"):
        parse_budget("2MB", space, full_file_bytes=lambda: 90_000.0)


def test_bins_follow_the_parameters():
    options = for_capped_costs(SupernetConfig(), ["file_bytes"])
    assert options.bins == "params_sensitive"
    assert for_capped_costs(SupernetConfig(), ["file_bytes", "latency_ms"]).bins == "flops_params_sensitive"


def test_the_estimate_is_that_of_the_files():
    space = cafenet.trace(net(), IMAGE)
    bins = uniform_bins(space, 8)
    sizes = FileSizes(space, bins, IMAGE, LatencyConfig())
    row = np.array([3, 5])
    written = sizes.written(row)
    assert written == file_bytes(space.extract(bins.widths(row).tolist()), IMAGE, LatencyConfig())
    assert 4 * space.params(bins.widths(row).tolist()) < written < sizes.full
    assert sizes.predict(bins.widths(row[None]))[0] == pytest.approx(written, rel=0.01)


def two_caps(latency_limit, file_limit):
    costs = {"latency_ms": lambda rows: rows.sum(axis=1) * 1.0, "file_bytes": lambda rows: rows[:, 0] * 10.0}
    bins = Bins(tuple(GroupBins(str(number), 40, first=1, size=1) for number in range(2)))
    return Feasible(bins, costs, Budget("b", (Cap("latency_ms", latency_limit), Cap("file_bytes", file_limit))))


def test_a_pick_must_meet_both_caps_and_files_are_written_once():
    within, written = two_caps(40, 200), []

    def write(row):
        written.append(tuple(row))
        return row[0] * 12.0

    meters = Meters(
        [Meter(within, write, cost="file_bytes", checks=0), Meter(within, lambda row: 1.5 * float(row.sum()))]
    )
    assert not meters.keeps(np.array([20, 2]))  # 240 bytes
    assert meters.says(np.array([20, 2])) == "takes 240 file_bytes, where 200 file_bytes are".replace(
        "file_bytes", "bytes"
    )
    assert meters.correct(None)
    assert meters.within.budget.caps == (Cap("latency_ms", 40), Cap("file_bytes", pytest.approx(200 / 1.2)))
    assert not meters.keeps(np.array([10, 20]))  # 45 ms
    assert meters.correct(None)
    assert [cap.limit for cap in meters.within.budget.caps] == pytest.approx([40 / 1.5, 200 / 1.2])
    assert meters.keeps(np.array([16, 10]))
    assert meters.costs((16, 10)) == {"file_bytes": 192.0, "latency_ms": 39.0}
    assert not meters.correct(np.array([16, 10]))  # both caps are well used
    assert len(written) == len(set(written)) == 3
    assert meters.measured == {(20, 2), (10, 20), (16, 10)}


def test_one_cap_that_holds_is_not_moved_by_another_that_does_not():
    within = two_caps(40, 200)
    meters = Meters(
        [Meter(within, lambda row: row[0] * 1.0, cost="file_bytes", checks=0), Meter(within, lambda row: 90.0)]
    )
    assert not meters.keeps(np.array([10, 20]))
    meters.correct(None)
    assert meters.within.budget.caps[1] == Cap("file_bytes", 200)


def test_a_search_keeps_the_size_of_its_file(tmp_path):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 3, 8, 8), torch.arange(64) % 2)
    model = net()
    limit = 0.7 * file_bytes(model, IMAGE, LatencyConfig())
    options = cafenet.SearchOptions(
        algorithm=cafenet.RandomSearch(samples=4), stages=cafenet.StagesConfig(num_stages=1)
    )
    result = cafenet.search(
        model, data, data, "70% file", epochs=1, finetune=False, options=options, quiet=True, example_inputs=IMAGE
    )
    cafenet.export(result.model, IMAGE, tmp_path / "slim.pt2", fixed_batch=True)
    size = (tmp_path / "slim.pt2").stat().st_size
    assert 0.85 * limit <= size <= limit * 1.001
    assert result.costs["file_bytes"] == pytest.approx(size, rel=1e-3)


def test_a_file_that_is_too_small_is_refused_before_any_training():
    data = TensorDataset(torch.randn(64, 3, 8, 8), torch.arange(64) % 2)
    with pytest.raises(BudgetError, match="'2KB' allows 2,000 bytes and the file of the smallest subnet has"):
        cafenet.search(net(), data, data, "2KB", epochs=1, quiet=True)


def test_int8_needs_a_runtime_that_has_it():
    with pytest.raises(DeploymentError, match="quantize='int8' needs one of the runtimes onnxruntime, openvino, exec"):
        LatencyConfig(quantize="int8")
    with pytest.raises(BudgetError, match="quantize must be"):
        LatencyConfig(runtime="onnxruntime", quantize="int4")


def test_int8_is_part_of_what_latencies_were_measured_with():
    pytest.importorskip("onnxruntime")
    settings = LatencyConfig(runtime="onnxruntime", quantize="int8")
    assert settings.made_with()["quantize"] == "int8"
    assert "quantize" not in LatencyConfig(runtime="onnxruntime").made_with()


def test_a_device_gets_the_int8_file():
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    ops = []

    def phone(file):
        ops.extend(node.op_type for node in onnx.load(str(file)).graph.node)
        return 3.0

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 1))
    assert measure_latency(model, IMAGE, LatencyConfig(runtime=phone, quantize="int8")) == 3.0
    assert "DequantizeLinear" in ops


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "package"), [("onnxruntime", ""), ("openvino", "nncf"), ("executorch", "torchao")])
def test_int8_files_are_smaller_and_run(runtime, package):
    pytest.importorskip(runtime)
    if package:
        pytest.importorskip(package)
    model = net(256)
    whole, small = LatencyConfig(runtime=runtime), LatencyConfig(runtime=runtime, quantize="int8", repeats=3)
    assert file_bytes(model, IMAGE, small) < 0.5 * file_bytes(model, IMAGE, whole)
    assert math.isfinite(measure_latency(model, IMAGE, small))
