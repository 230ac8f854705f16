"""Transformers of torchvision, timm and Hugging Face: what half of all widths leaves."""
