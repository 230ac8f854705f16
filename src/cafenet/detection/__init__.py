"""Detection with a slim classification model as the backbone: Faster R-CNN with FPN, and RetinaNet."""

from cafenet.detection.backbone import Pyramid, feature_pyramid
from cafenet.detection.dataset import CocoData, divide
from cafenet.detection.detectors import Detector, DetectorConfig, build_detector
from cafenet.detection.evaluation import Evaluation, evaluate_detections, predict
from cafenet.detection.images import Pictures, Scaling
from cafenet.detection.pyramid_search import FixedSize, head_parameters, pyramid_loss, pyramid_metric, with_pyramid
from cafenet.detection.read_coco import read_coco
from cafenet.detection.recipe import BackbonesConfig, DetectionData, DetectionRecipe
from cafenet.detection.report_page import write_detection_report
from cafenet.detection.run_recipe import detect, load_detector
from cafenet.detection.torchvision_ops import working_ops
from cafenet.detection.training import DetectionTraining, train_detector

__all__ = [
    "BackbonesConfig",
    "CocoData",
    "DetectionData",
    "DetectionRecipe",
    "DetectionTraining",
    "Detector",
    "DetectorConfig",
    "Evaluation",
    "FixedSize",
    "Pictures",
    "Pyramid",
    "Scaling",
    "build_detector",
    "detect",
    "divide",
    "evaluate_detections",
    "feature_pyramid",
    "head_parameters",
    "load_detector",
    "predict",
    "pyramid_loss",
    "pyramid_metric",
    "read_coco",
    "train_detector",
    "with_pyramid",
    "working_ops",
    "write_detection_report",
]
