"""The models of timm, torchvision and Hugging Face that must not be changed: the smaller ones of each family."""

from typing import Any

import torch
from torch import Tensor, nn

TIMM = (
    "resnet18", "resnet26d", "resnext50_32x4d", "res2net50_14w_8s", "seresnet18", "skresnet18", "ecaresnet26t",
    "wide_resnet50_2", "mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small", "mobilenet_edgetpu_v2_xs",
    "efficientnet_b0", "efficientnet_lite0", "tinynet_e", "mnasnet_small", "fbnetc_100", "ghostnet_050", "lcnet_035",
    "mixnet_s", "hardcorenas_a", "spnasnet_100", "regnetx_002", "regnety_002", "densenet121", "dla46x_c", "dpn48b",
    "inception_v3", "inception_next_atto", "xception41", "vgg11_bn", "repvgg_a0", "repghostnet_050", "mobileone_s0",
    "convnext_atto", "convnextv2_atto", "convmixer_768_32", "fasternet_t0", "starnet_s1", "rdnet_tiny", "hgnet_tiny",
    "hrnet_w18_small", "cspresnet50", "darknet17", "selecsls42", "nf_regnet_b0", "dm_nfnet_f0", "eca_nfnet_l0",
    "deit_tiny_patch16_224", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256",
    "pvt_v2_b0", "poolformer_s12", "mixer_s32_224", "resmlp_12_224", "gmixer_12_224", "levit_128s",
    "efficientformer_l1", "mobilevit_xxs", "edgenext_xx_small", "xcit_nano_12_p16_224", "coat_lite_tiny",
    "crossvit_tiny_240", "cait_xxs24_224", "twins_svt_small", "mambaout_femto", "efficientvit_b0", "fastvit_t8",
    "tiny_vit_5m_224", "maxvit_tiny_rw_224",
)  # fmt: skip
TORCHVISION = (
    "alexnet", "vgg11", "vgg11_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2",
    "mobilenet_v3_small", "mobilenet_v3_large", "shufflenet_v2_x0_5", "squeezenet1_0", "densenet121", "googlenet",
    "inception_v3", "mnasnet0_5", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf", "convnext_tiny",
    "vit_b_32", "swin_t", "swin_v2_t", "maxvit_t",
)  # fmt: skip

IDS = torch.arange(1, 17)[None]
PICTURE = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100}
SIGHT = {**{key: TEXT[key] for key in TEXT if key != "vocab_size"}, "image_size": 64, "patch_size": 16}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}

HUGGING_FACE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert": ("BertModel", TEXT, {"input_ids": IDS}),
    "bert, attention_mask": ("BertModel", TEXT, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}),
    "bert, output_hidden_states": ("BertModel", TEXT, {"input_ids": IDS, "output_hidden_states": True}),
    "bert, classes": ("BertForSequenceClassification", TEXT, {"input_ids": IDS}),
    "distilbert": ("DistilBertModel", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}, {"input_ids": IDS}),
    "roberta": ("RobertaModel", TEXT, {"input_ids": IDS}),
    "albert": ("AlbertModel", {**TEXT, "embedding_size": 16}, {"input_ids": IDS}),
    "electra": ("ElectraModel", {**TEXT, "embedding_size": 16}, {"input_ids": IDS}),
    "mpnet": ("MPNetModel", TEXT, {"input_ids": IDS}),
    "modernbert": ("ModernBertModel", {**TEXT, "pad_token_id": 0}, {"input_ids": IDS}),
    "gpt2": ("GPT2Model", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100}, {"input_ids": IDS}),
    "gpt2, no cache": (
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100},
        {"input_ids": IDS, "use_cache": False},
    ),
    "opt": ("OPTModel", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}, {"input_ids": IDS}),
    "llama": ("LlamaModel", {**TEXT, "num_key_value_heads": 2}, {"input_ids": IDS}),
    "llama, no cache": ("LlamaForCausalLM", {**TEXT, "num_key_value_heads": 2}, {"input_ids": IDS, "use_cache": False}),
    "qwen2": ("Qwen2Model", {**TEXT, "num_key_value_heads": 2}, {"input_ids": IDS, "use_cache": False}),
    "mixtral": (
        "MixtralModel",
        {**TEXT, "num_key_value_heads": 2, "num_local_experts": 2},
        {"input_ids": IDS, "use_cache": False},
    ),
    "t5": (
        "T5Model",
        {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 100},
        {"input_ids": IDS, "decoder_input_ids": IDS},
    ),
    "t5 encoder": (
        "T5EncoderModel",
        {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 100},
        {"input_ids": IDS},
    ),
    "vit": ("ViTForImageClassification", SIGHT, {"pixel_values": PICTURE}),
    "deit": ("DeiTModel", SIGHT, {"pixel_values": PICTURE}),
    "dinov2": ("Dinov2Model", {**SIGHT, "mlp_ratio": 2}, {"pixel_values": PICTURE}),
    "segformer": (
        "SegformerForImageClassification",
        {**STAGES, "num_attention_heads": [1, 1, 2, 4], "decoder_hidden_size": 16},
        {"pixel_values": PICTURE},
    ),
    "segformer, segmentation": (
        "SegformerForSemanticSegmentation",
        {**STAGES, "num_attention_heads": [1, 1, 2, 4], "decoder_hidden_size": 16},
        {"pixel_values": PICTURE},
    ),
    "convnext": ("ConvNextForImageClassification", STAGES, {"pixel_values": PICTURE}),
    "resnet": (
        "ResNetForImageClassification",
        {**STAGES, "embedding_size": 8, "layer_type": "basic"},
        {"pixel_values": PICTURE},
    ),
    "mobilenet_v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.35}, {"pixel_values": PICTURE}),
    "swin": (
        "SwinForImageClassification",
        {"image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        {"pixel_values": PICTURE},
    ),
    "clip": (
        "CLIPModel",
        {"text_config": {**TEXT, "max_position_embeddings": 32}, "vision_config": SIGHT, "projection_dim": 16},
        {"input_ids": IDS, "pixel_values": PICTURE},
    ),
    "wav2vec2": (
        "Wav2Vec2Model",
        {**TEXT, "conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8], "num_feat_extract_layers": 2}
        | {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2},
        {"input_values": torch.randn(1, 400, generator=torch.Generator().manual_seed(0))},
    ),
    "whisper": (
        "WhisperModel",
        {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "vocab_size": 100}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 50}
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        {
            "input_features": torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(0)),
            "decoder_input_ids": IDS,
        },
    ),
    "mamba": ("MambaModel", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100}, {"input_ids": IDS}),
}
"""Models by name: the class, options of its configuration, and example inputs."""


def hugging_face(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A small model with random weights."""
    import transformers

    kind, options, inputs = HUGGING_FACE[name]
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    return model_class(model_class.config_class(**options)), inputs
