"""Trains the demo: a small residual network that reads handwritten digits, and the samples to compress it with.

Run it from the root of the repository; it takes a few minutes on one core and overwrites `examples/digits.onnx`,
`calibration_data/digits_calibration.npz` and `calibration_data/digits_evaluation.npz`:

    pip install . --group demo
    python examples/train_digits.py

torch and scikit-learn come from the dependency group `demo`; nothing else in the project needs them.
The same versions on the same kind of CPU give the same three files.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

SEED = 0
SIDE_PIXELS = 32
WIDTHS = (48, 64, 64)  # channels out of each block; a wider block halves height and width
CALIBRATION_SAMPLES = 200
EVALUATION_SAMPLES = 600
EPOCHS = 16
BATCH = 32
SHIFT_PIXELS = 3
ROOT = Path(__file__).resolve().parent.parent


class Part(NamedTuple):
    """Images `[n, 1, 32, 32]` from 0 to 1 and their digits `[n]`."""

    images: Tensor
    labels: Tensor


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inside: int, outside: int) -> None:
        """Take the channels before and after."""
        super().__init__()
        stride = 1 if inside == outside else 2
        self.body = nn.Sequential(
            _convolution(inside, outside, 3, stride), nn.ReLU(), _convolution(outside, outside, 3, 1)
        )
        self.shortcut = nn.Identity() if inside == outside else _convolution(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Give `[batch, outside, h, w]`, halved where the shape changes."""
        return torch.relu(self.body(x) + self.shortcut(x))


def network() -> nn.Module:
    """Give the untrained network: images `[batch, 1, 32, 32]` to logits `[batch, 10]`."""
    blocks = [Block(inside, outside) for inside, outside in pairwise(WIDTHS)]
    return nn.Sequential(
        _convolution(1, WIDTHS[0], 3, 1),
        nn.ReLU(),
        Block(WIDTHS[0], WIDTHS[0]),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDTHS[-1], 10),
    )


def parts() -> tuple[Part, Part, Part]:
    """Split the data set into training, calibration and evaluation, disjoint and each with its share of every digit."""
    digits = load_digits()
    held_out = CALIBRATION_SAMPLES + EVALUATION_SAMPLES
    train, rest = train_test_split(
        np.arange(len(digits.target)), test_size=held_out, stratify=digits.target, random_state=SEED
    )
    calibration, evaluation = train_test_split(
        rest, test_size=EVALUATION_SAMPLES, stratify=digits.target[rest], random_state=SEED
    )
    images, labels = _enlarge(digits.images), torch.from_numpy(digits.target)
    chosen = [Part(images[rows], labels[rows]) for rows in (train, calibration, evaluation)]
    return chosen[0], chosen[1], chosen[2]


def train(model: nn.Module, part: Part) -> None:
    """Fit `model` to `part` in place, each image shifted by a few pixels anew in every epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(part.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    model.train()
    for epoch in range(EPOCHS):
        for rows in torch.randperm(len(part.labels)).split(BATCH):
            loss = functional.cross_entropy(model(_shifted(part.images[rows])), part.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.4f}")


def export(model: nn.Module, path: Path) -> None:
    """Write `model` as one ONNX file with a dynamic batch axis."""
    torch.onnx.export(
        model.eval(),
        (torch.zeros(1, 1, SIDE_PIXELS, SIDE_PIXELS),),
        path,
        input_names=["input"],
        output_names=["logits"],
        dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=20,
        # the newer exporter folds batch normalisation and spells pooling as ReduceMean and Reshape with a fixed width
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )


def accuracy(path: Path, part: Part) -> float:
    """Measure the share of `part` that the ONNX file reads right."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"input": part.images.numpy()})
    return float((logits.argmax(1) == part.labels.numpy()).mean())


def main() -> None:
    """Make the three files and print how good the model is on the evaluation samples."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(mode=True)
    torch.set_num_threads(1)  # sums come in one order
    training, calibration, evaluation = parts()
    for name, part in {"calibration": calibration, "evaluation": evaluation}.items():
        path = ROOT / "calibration_data" / f"digits_{name}.npz"
        np.savez_compressed(path, input=part.images.numpy(), label=part.labels.numpy())
    model = network()
    train(model, training)
    path = ROOT / "examples" / "digits.onnx"
    export(model, path)
    print(f"{sum(weights.numel() for weights in model.parameters())} parameters, {path.stat().st_size} bytes")
    print(f"top-1 on {len(evaluation.labels)} evaluation samples: {accuracy(path, evaluation):.2%}")


def _convolution(inside: int, outside: int, side: int, stride: int) -> nn.Module:
    normalisation = nn.BatchNorm2d(outside)
    # biases that start and stay equal, as a shortcut's and its body's, would be exported as one behind an Identity
    nn.init.normal_(normalisation.bias, std=0.01)
    return nn.Sequential(
        nn.Conv2d(inside, outside, side, stride, padding=side // 2, bias=False),
        normalisation,
    )


def _enlarge(images: np.ndarray) -> Tensor:
    small = torch.from_numpy(images).float()[:, None] / 16  # the data set counts ink from 0 to 16
    return functional.interpolate(small, size=(SIDE_PIXELS, SIDE_PIXELS), mode="bilinear")


def _shifted(images: Tensor) -> Tensor:
    padded = functional.pad(images, [SHIFT_PIXELS] * 4)
    offsets = torch.randint(0, 2 * SHIFT_PIXELS + 1, (len(images), 2)).tolist()
    return torch.stack(
        [image[:, y : y + SIDE_PIXELS, x : x + SIDE_PIXELS] for image, (y, x) in zip(padded, offsets, strict=True)]
    )


if __name__ == "__main__":
    main()
