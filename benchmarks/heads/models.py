"""The named lists: torchvision and timm by name, transformers as small configs with four heads where they may have."""

from typing import Any

import torch
from torch import Tensor, nn

import cafenet
from cafenet.common.torchvision_compat import import_torchvision

TORCHVISION = ("vit_b_16", "swin_t", "swin_v2_t", "maxvit_t")
TIMM = {
    "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "maxvit_rmlp_pico_rw_256": 256,
    "beit_base_patch16_224": 224,
    "cait_xxs24_224": 224,
    "pvt_v2_b0": 224,
    "twins_pcpvt_small": 224,
    "twins_svt_small": 224,
    "davit_tiny": 224,
    "eva02_tiny_patch14_224": 224,
    "volo_d1_224": 224,
}
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_TOKENS = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ENCODER_DECODER = {
    **{"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4},
    **{"decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256},
}
HUGGING_FACE: dict[str, dict[str, Any]] = {
    "ViTForImageClassification": {**_SIZES, "image_size": 64, "patch_size": 8},
    "SwinForImageClassification": {
        **{"image_size": 64, "patch_size": 2, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    },
    "SegformerForSemanticSegmentation": {
        **{"hidden_sizes": [32, 64, 128, 256], "num_attention_heads": [2, 4, 4, 8], "depths": [1, 1, 1, 1]},
        **{"decoder_hidden_size": 64},
    },
    "DetrForObjectDetection": {**_ENCODER_DECODER, "num_queries": 16},
    "BertForSequenceClassification": {**_SIZES, "vocab_size": 100},
    "RobertaForSequenceClassification": {**_SIZES, "vocab_size": 100},
    "GPT2LMHeadModel": {**{"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4}},
    "T5ForConditionalGeneration": {
        **{"vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 256, "num_layers": 2, "num_heads": 4}
    },
    "LlamaForCausalLM": {**_SIZES, "vocab_size": 100, "num_key_value_heads": 2},
    "Qwen2ForCausalLM": {**_SIZES, "vocab_size": 100, "num_key_value_heads": 2},
    "WhisperForConditionalGeneration": {
        **_ENCODER_DECODER,
        **_TOKENS,
        **{"num_mel_bins": 16, "max_source_positions": 32, "decoder_start_token_id": 1},
    },
    "CLIPModel": {
        "text_config": {**_SIZES, **_TOKENS, "projection_dim": 32},
        "vision_config": {**_SIZES, "image_size": 64, "patch_size": 8, "projection_dim": 32},
        "projection_dim": 32,
    },
    "Wav2Vec2ForCTC": {
        **_SIZES,
        **{"vocab_size": 32, "conv_dim": [32, 32, 32], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3]},
        **{"num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
    },
}
NAMES = (
    *(f"torchvision:{name}" for name in TORCHVISION),
    *(f"timm:{name}" for name in TIMM),
    *(f"hf:{name}" for name in HUGGING_FACE),
)


def build(name: str) -> tuple[nn.Module, Any, tuple[str, ...] | None]:
    """A model with random weights, its inputs, and the outputs that count (None: all)."""
    torch.manual_seed(0)
    kind, _, target = name.partition(":")
    if kind == "hf":
        return _hugging_face(target)
    import_torchvision()
    options = {"num_classes": 1000} if kind == "timm" else {}
    return cafenet.load_model(name, **options).eval(), _image(TIMM.get(target, 224)), None


def _hugging_face(target: str) -> tuple[nn.Module, Any, tuple[str, ...] | None]:
    options = dict(HUGGING_FACE[target])
    if target.startswith("Detr"):
        import_torchvision()
        from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

        backbone = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1], "layer_type": "basic"}
        options["backbone_config"] = ResNetConfig(**backbone, out_features=["stage2"])
        config = DetrConfig(**options, use_timm_backbone=False, use_pretrained_backbone=False)
        return DetrForObjectDetection(config).eval(), _image(64), ("logits", "pred_boxes")
    model = cafenet.load_model(f"hf:{target}", **options).eval()
    text = torch.randint(3, 90, (1, 64))
    if target.startswith(("Bert", "Roberta")):
        return model, {"input_ids": text, "attention_mask": torch.ones_like(text)}, None
    if target.startswith("CLIP"):
        inputs = {"input_ids": text, "attention_mask": torch.ones_like(text), "pixel_values": _image(64)}
        return model, inputs, ("logits_per_image",)
    if target.startswith("T5"):
        return model, {"input_ids": text, "decoder_input_ids": text}, ("logits",)
    if target.startswith("Whisper"):
        inputs = {"input_features": torch.randn(1, 16, 64), "decoder_input_ids": text[:, :32]}
        return model, inputs, ("logits",)
    if target.startswith(("GPT2", "Llama", "Qwen2")):
        return model, {"input_ids": text}, ("logits",)
    if target.startswith("Wav2Vec2"):
        return model, torch.randn(1, 2000), None
    size = 128 if target.startswith("Segformer") else 64
    return model, _image(size), None


def _image(size: int) -> Tensor:
    return torch.zeros(1, 3, size, size)
