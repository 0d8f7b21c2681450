"""Calibration: the range of every float activation, seen over the samples.

Another statistic of activations is gathered here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from compressor.records import Progress, Work
from compressor.stages.quantize.job import Job

Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value of each float activation."""

ENDLESS = 1e30
"""From here on a value is as good as infinite."""
_AT_ONCE = 8
"""Samples whose ranges are held before they are merged; memory stays flat in the number of samples."""


def calibrate(job: Job, cache: Path) -> Work[Ranges]:
    """Give the range of every float activation, and write them to `cache` for ONNX Runtime's quantizer.

    onnxruntime 1.32 merges its chunks itself under CalibMaxIntermediateOutputs, but forgets all chunks but the last;
    so they are handed to it one by one. It computes a scale for every range, of nodes that stay float too, and fails
    where a range is not finite; so in `cache` none is beyond `ENDLESS`.
    """
    from onnxruntime.quantization import calibrate as ort

    with tempfile.TemporaryDirectory() as folder:
        calibrator = ort.create_calibrator(job.model, augmented_model_path=str(Path(folder) / "augmented.onnx"))
        feeds = iter(job.samples)
        for done in range(0, job.feeds, _AT_ONCE):
            yield Progress("calibrate", done, job.feeds)
            calibrator.collect_data(SimpleNamespace(get_next=partial(next, islice(feeds, _AT_ONCE), None)))
    bounds = {name: data.range_value for name, data in calibrator.compute_data().items()}
    finite = {name: tuple(np.clip(np.nan_to_num(pair), -ENDLESS, ENDLESS)) for name, pair in bounds.items()}
    ort.save_tensors_data(ort.TensorsData(ort.CalibrationMethod.MinMax, finite), cache)
    return {name: (float(least.item()), float(greatest.item())) for name, (least, greatest) in bounds.items()}
