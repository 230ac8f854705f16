"""Detection with a slim classification model as the backbone: Faster R-CNN with FPN, and RetinaNet."""

from cafenet.detection.backbone import Pyramid, feature_pyramid
from cafenet.detection.coco import CocoData, divide
from cafenet.detection.coco_file import read_coco
from cafenet.detection.config import BackbonesConfig, DetectionData, DetectionRecipe
from cafenet.detection.detectors import Detector, DetectorConfig, build_detector
from cafenet.detection.evaluation import Evaluation, evaluate_detections, predict
from cafenet.detection.ops import working_ops
from cafenet.detection.pictures import Pictures, Scaling
from cafenet.detection.pyramid_search import FixedSize, head_parameters, pyramid_loss, pyramid_metric, with_pyramid
from cafenet.detection.report import write_detection_report
from cafenet.detection.run import detect, load_detector
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
