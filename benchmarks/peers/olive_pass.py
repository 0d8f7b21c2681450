"""Olive's static quantization of ONNX models, with the defaults of its pass: `MODEL FEEDS OUT`."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from feeds import Folder
from olive.data.registry import Registry
from olive.workflows import run


@dataclass(frozen=True)
class Tensors(torch.utils.data.Dataset[tuple[dict[str, torch.Tensor], int]]):
    """Feeds as Olive takes them: complete, with a label that nobody reads."""

    feeds: Folder

    def __len__(self) -> int:
        """Count the feeds."""
        return len(self.feeds)

    def __getitem__(self, index: int) -> tuple[dict[str, torch.Tensor], int]:
        """Give one feed."""
        return {name: torch.from_numpy(value) for name, value in self.feeds[index].items()}, 0


@Registry.register_dataset()
def peer_feeds(folder: str, **_: Any) -> Tensors:
    """Give the feeds of a folder."""
    return Tensors(Folder(folder))


def main(model: str, folder: str, out: str) -> None:
    """Quantize one model."""
    data = {
        "name": "calibration",
        "type": "DataContainer",
        "load_dataset_config": {"type": "peer_feeds", "params": {"folder": folder}},
        "dataloader_config": {"type": "no_auto_batch_dataloader"},
    }
    with TemporaryDirectory() as scratch:
        workflow = {
            "input_model": {"type": "ONNXModel", "model_path": model},
            "data_configs": [data],
            "passes": {"quantize": {"type": "OnnxStaticQuantization", "data_config": "calibration"}},
            "cache_dir": f"{scratch}/cache",
            "output_dir": f"{scratch}/out",
        }
        done = run(workflow)
        shutil.copyfile(Path(done.get_best_candidate().model_path), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
