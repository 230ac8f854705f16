"""Transformers' own models, whose forwards read values: FLOPs equal hand arithmetic, attention is in them."""

import pytest

import cafenet
from tests.helpers.hugging_face import bert, build, tokens
from tests.helpers.networks import sizes

# Per token of 16 features: 4 * 16 * 16 = 1024 for queries, keys, values and results, 2 * 16 * 24 = 768 for the MLP.
# Attention of n tokens to m others: 2 * n * m * 16.
FLOPS = {
    # 2 layers on 12 tokens; the pooler 16 * 16, the head 16 * 3
    "bert": 2 * (12 * (1024 + 768) + 2 * 12 * 12 * 16) + 256 + 48,
    # keys and values have half the heads; the MLP has 3 * 16 * 24; the head 16 * 20 for each token
    "llama": 2 * (12 * (768 + 1152) + 2 * 12 * 12 * 16) + 12 * 320,
    "qwen2": 2 * (12 * (768 + 1152) + 2 * 12 * 12 * 16) + 12 * 320,
    # two convolutions, an encoder of 8 frames, a decoder of 12 tokens that attends to itself and to the frames
    "whisper": 16 * 3 * 4 * 16
    + 8 * 3 * 16 * 16
    + 8 * (1024 + 768)
    + 2 * 8 * 8 * 16
    + 12 * (1024 + 512 + 768)
    + 8 * 512
    + 2 * 12 * (12 + 8) * 16
    + 12 * 320,
    # stem, two stages (8x8 and 4x4), projection; an encoder of 16 places, a decoder of 5 queries, two heads
    "detr": 16 * 16 * 7 * 7 * 3 * 8
    + 2 * 64 * 9 * 8 * 8
    + 16 * (9 * 8 * 12 + 9 * 12 * 12 + 8 * 12)
    + 16 * 12 * 16
    + 16 * (1024 + 768)
    + 2 * 16 * 16 * 16
    + 5 * (1024 + 512 + 768)
    + 16 * 512
    + 2 * 5 * (5 + 16) * 16
    + 5 * (16 * 4 + 2 * 256 + 16 * 4),
}


@pytest.mark.parametrize("name", list(FLOPS))
def test_flops_by_hand(name: str):
    model, inputs = build(name)
    space = cafenet.trace(model, inputs)
    assert space.flops() == FLOPS[name]
    assert cafenet.verify(space, inputs, trials=1).problems == []


def test_a_mask_changes_nothing_about_the_space():
    """With a mask the forward reads values; the widths and their costs are those of the forward that reads none."""
    build("bert")  # skips where transformers is absent
    model, inputs = bert()
    masked, plain = cafenet.trace(model, inputs), cafenet.trace(model, {"input_ids": tokens()})
    assert sizes(masked) == sizes(plain)
    assert masked.flops(masked.min_widths) == plain.flops(plain.min_widths)
    assert [frozen.name for frozen in masked.frozen] == [frozen.name for frozen in plain.frozen]
