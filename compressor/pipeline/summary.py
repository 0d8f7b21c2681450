"""What every report says of its model and its data.

A report's block that does not depend on what was measured is a function here.
"""

from __future__ import annotations

from compressor.plan import Plan
from compressor.records import Data, Model, Original


def original(model: Model) -> Original:
    """Describe the model that was given."""
    return Original(
        name=model.path.stem,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        parameters=model.parameters,
        macs=model.macs,
        nodes=model.nodes,
        opset=model.opset,
    )


def data(settled: Plan) -> Data:
    """Describe the samples that were used."""
    preprocess = settled.recipe.data.preprocess
    return Data(
        calibration=settled.calibration.source,
        evaluation=settled.evaluation.source if settled.evaluation else None,
        preprocess=preprocess.model_dump(mode="json", exclude_none=True) if preprocess else None,
        metric=settled.metric,
    )
