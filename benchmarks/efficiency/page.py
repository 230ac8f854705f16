"""The efficiency benchmark's results as a page."""

from typing import Any

# Seconds per CIFAR-10 epoch in the paper's table of appendix a5 for r = 0, 1, 2, 3.
PAPER = {"mobilenet_v2": (51.3, 61.1, 95.2, 203.6), "vgg": (61.6, 72.4, 109.7, 258.4)}


def markdown(results: dict[str, Any]) -> str:
    """The whole page."""
    lines = [
        "# What choosing the best candidate costs",
        "",
        "Made by `make bench-efficiency` (`python -m benchmarks.efficiency`, which says how); one CPU core, batch 256,",
        "narrow CIFAR networks (VGG-19 at a quarter of its width on 32x32 images, MobileNetV2 at a quarter on",
        "16x16). Times are ratios to an r = 0 step of the same widths in the same run. `arithmetic` is (candidates",
        "x forward + step) / step with the measured times of one forward and one step. `quality` is (loss of the",
        "raced choice - minimum) / (mean - minimum): 0 is the best candidate, 1 a random one; mean over training",
        "with its standard error, and the same of sums, which do not count steps where all candidates are alike.",
        "",
        "| network | r | candidates | race | exact | arithmetic | exact / arithmetic | race quality | of sums | "
        "paper |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in results.values():
        if "r" not in row:
            continue
        seconds = PAPER[row["network"]]
        sem = row["race_quality_sem"]
        lines.append(
            f"| {row['network']} | {row['r']} | {row['candidates']} | {row['race_ratio']:.2f} | "
            f"{row['exact_ratio']:.2f} | {row['arithmetic_ratio']:.2f} | {row['exact_over_arithmetic']:.2f} | "
            f"{row['race_quality']:.2f}{'' if sem is None else f' ± {sem:.2f}'} (n={row['num_quality']}) | "
            f"{row['race_quality_of_sums']:.2f} | "
            f"{seconds[row['r']] / seconds[0]:.2f} |"
        )
    lines += [
        "",
        "The race tries 2 sqrt(n) of n candidates on a quarter of the batch and the best of them on an eighth or a",
        "quarter more. The aims are a ratio of 1.3, 1.6 and 2.3 for r = 1, 2 and 3 with a quality of 0.3. They pull in",
        "opposite directions: candidates differ by a few hundredths of the loss, which a part of the batch shows only",
        "with the chance of its examples, and a forward pass is a quarter to a third of a step. Small parts also cost",
        "more than their share, the more so beside other work on the same machine.",
        "",
        "The paper's ratios (its epoch seconds, appendix `a5`) lie below the arithmetic of its own method, so its",
        "training cannot have been compute-bound; they are shown for reference only.",
        "",
        "| network | full-width step / plain step of the model | peak memory, MB |",
        "| --- | ---: | --- |",
    ]
    for row in results.values():
        if "peak_mb" in row:
            peaks = ", ".join(f"{label} {value}" for label, value in row["peak_mb"].items())
            lines.append(f"| {row['network']} | {row['full_width_ratio']:.2f} | {peaks} |")
    return "\n".join(lines) + "\n"
