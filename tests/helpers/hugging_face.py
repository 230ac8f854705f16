"""Small models of Hugging Face's transformers, made from their configs, and what they are called with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cafenet.common.torchvision_compat import import_torchvision

NUM_TOKENS = 12


def bert(**options: Any) -> tuple[nn.Module, dict[str, Any]]:
    """2 layers of 16 features in 2 heads, 24 inside the MLP."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=3
    )
    mask = torch.ones(1, NUM_TOKENS, dtype=torch.long)
    mask[:, -3:] = 0
    return BertForSequenceClassification(config), {"input_ids": tokens(), "attention_mask": mask, **options}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    """2 layers of 16 features in 4 heads of 4, keys and values in 2, 24 inside the MLP."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_DECODER)), {"input_ids": tokens(), "use_cache": False}


def qwen2() -> tuple[nn.Module, dict[str, Any]]:
    """Like `llama`, with biases."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    mask = torch.ones(1, NUM_TOKENS, dtype=torch.long)
    mask[:, :3] = 0
    inputs = {"input_ids": tokens(), "attention_mask": mask, "use_cache": False}
    return Qwen2ForCausalLM(Qwen2Config(**_DECODER)), inputs


_DECODER = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


def whisper() -> tuple[nn.Module, dict[str, Any]]:
    """1 layer of encoder and decoder, 16 features in 2 heads, 24 inside the MLPs; 8 frames of 4 mel bins."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=20,
        num_mel_bins=4,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=8,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs = {"input_features": torch.randn(1, 4, 16), "decoder_input_ids": tokens(), "use_cache": False}
    return WhisperForConditionalGeneration(config), inputs


def detr() -> tuple[nn.Module, dict[str, Any]]:
    """A ResNet of two stages, 1 layer of encoder and decoder, 16 features in 2 heads, 24 inside the MLPs, 5 queries."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=5,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        num_labels=3,
    )
    mask = torch.ones(1, 32, 32, dtype=torch.long)
    mask[:, 24:] = 0
    return DetrForObjectDetection(config), {"pixel_values": torch.randn(1, 3, 32, 32), "pixel_mask": mask}


def segformer() -> tuple[nn.Module, dict[str, Any]]:
    """2 stages of 8 and 16 features."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=12,
        num_labels=3,
    )
    return SegformerForSemanticSegmentation(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def wav2vec2(layerdrop: float = 0.5) -> tuple[nn.Module, dict[str, Any]]:
    """3 layers, each of which is skipped in half of the training steps; a mask embedding that only training uses."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=[8, 8],
        conv_stride=[4, 2],
        conv_kernel=[8, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        layerdrop=layerdrop,
        mask_time_prob=0.5,
        mask_time_length=2,
    )
    return Wav2Vec2Model(config), {"input_values": torch.randn(1, 400)}


def tokens() -> torch.Tensor:
    """Numbers of words, one sentence."""
    return torch.arange(3, 3 + NUM_TOKENS)[None]


Builder = Callable[[], tuple[nn.Module, dict[str, Any]]]

BUILDERS: dict[str, Builder] = {
    "bert": bert,
    "bert with hidden states": lambda: bert(output_hidden_states=True),
    "llama": llama,
    "qwen2": qwen2,
    "whisper": whisper,
    "detr": detr,
    "segformer": segformer,
    "wav2vec2": wav2vec2,
}


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in eval mode with its inputs; skips the test where transformers is absent."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    import_torchvision()  # which transformers imports, too, and fails beside a CPU-only torch
    torch.manual_seed(0)
    model, inputs = BUILDERS[name]()
    return model.eval(), inputs
