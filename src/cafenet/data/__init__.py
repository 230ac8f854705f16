"""Data sets, their division into parts, and loaders for training and scoring."""

from cafenet.data.augment import Augmentation
from cafenet.data.celeba import load_celeba
from cafenet.data.datasets import DataSets, ImageData, to_rgb
from cafenet.data.fashion import fashion_mnist
from cafenet.data.image_files import in_memory
from cafenet.data.load import load_data
from cafenet.data.loaders import eval_loader, train_loader
from cafenet.data.npz import load_npz
from cafenet.data.split import hold_out, stratified_sample, stratified_split
from cafenet.data.torchvision_sets import load_cifar10, load_cifar100, load_image_folder

__all__ = [
    "Augmentation",
    "DataSets",
    "ImageData",
    "eval_loader",
    "fashion_mnist",
    "hold_out",
    "in_memory",
    "load_celeba",
    "load_cifar10",
    "load_cifar100",
    "load_data",
    "load_image_folder",
    "load_npz",
    "stratified_sample",
    "stratified_split",
    "to_rgb",
    "train_loader",
]
