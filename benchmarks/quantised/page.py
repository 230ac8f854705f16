"""The page of the results."""

from benchmarks.common.results_file import Results

FORMATS = {"onnxruntime": "ONNX", "openvino": "OpenVINO", "executorch": "ExecuTorch (XNNPACK)"}
"""Names of the formats by their runtimes."""
NETWORKS = ("CNN", "Vision transformer")
"""Names of the networks."""
_TEXT = """# int8 files

A small CNN and a small vision transformer, trained on 8,000 images of CIFAR-10 at 16x16 for a few epochs, exported in
float and in int8 by the quantiser of each ecosystem. Every file was read back and run in its runtime on 1,000 test
images. Milliseconds are of one image and one thread: the processor's time, on a machine that was busy with other work.

```
python -m benchmarks.quantised
```

| network | format | accuracy: model | float file | int8 file | float | int8 | float | int8 |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

{problems}
{missing}
"""


def markdown(results: Results) -> str:
    """The page as Markdown."""
    rows, problems = [], []
    for name, row in results.rows("files").items():
        network, runtime = name.rsplit(" ", 1)
        if "problem" in row:
            problems.append(f"{network} in {FORMATS[runtime]}: {row['problem']}.")
            continue
        whole, small, kilobyte = row["float"], row["int8"], 1000
        rows.append(
            f"| {network} | {FORMATS[runtime]} | {results.rows('accuracy')[network]:.1%} | {whole['accuracy']:.1%} | "
            f"{small['accuracy']:.1%} | {whole['ms']:.3f} ms | {small['ms']:.3f} ms | "
            f"{whole['bytes'] / kilobyte:,.0f} KB | {small['bytes'] / kilobyte:,.0f} KB |"
        )
    names = [f"{network} in {FORMATS[each]}" for network in NETWORKS for each in FORMATS]
    done = {" in ".join((name.rsplit(" ", 1)[0], FORMATS[name.rsplit(" ", 1)[1]])) for name in results.rows("files")}
    missing = [name for name in names if name not in done]
    text = _TEXT.format(
        rows="\n".join(rows),
        problems="\n".join(problems),
        missing=f"Not measured yet: {', '.join(missing)}." if missing else "",
    )
    return text.rstrip() + "\n"
