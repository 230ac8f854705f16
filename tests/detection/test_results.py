"""The headline of a detection run: what a backbone gained, or that nothing can be concluded yet."""

from cafenet.detection.results import DetectorRow, headline_of


def row(backbone: str, flops: int, precision: float) -> DetectorRow:
    scores = ({"mAP": precision},)
    return DetectorRow(backbone, backbone, "retinanet", "none", flops, 10, (0,), scores, ({},))


def test_detectors_that_found_nothing_are_not_compared():
    """Half a percent is something; less is nothing, with whatever backbone."""
    nothing = [row("Original", 100, 0.004), row("CafeNet-T 50%", 50, 0.0)]
    assert headline_of(nothing[1], nothing) == (
        "Nothing can be concluded: no detector found anything yet; train longer (--train.epochs)"
    )
    something = [row("Original", 100, 0.30), row("CafeNet-T 50%", 50, 0.0)]
    assert headline_of(something[1], something) == "Half the FLOPs, 0.0% mAP, 30.00 points below the original (1 seed)"
