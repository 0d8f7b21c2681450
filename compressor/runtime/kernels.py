"""Whether this machine's integer kernels are exact.

Another question to the kernels is a function here.
"""

from __future__ import annotations

import numpy as np

from compressor.runtime.session import CPU


def saturates() -> bool:
    """Tell whether this CPU's integer kernels overflow: U8 times S8 pairs summed in 16 bits (AVX2 without VNNI).

    64 products of 255 and 127 must sum to 2 072 640.
    """
    import onnx

    depth, activation, weight = 64, 255, 127
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> probe (uint8[1,{depth}] a, int8[{depth},{depth}] b) '
        f"=> (int32[1,{depth}] y) {{ y = MatMulInteger(a, b) }}"
    )
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=[CPU])
    feeds = {"a": np.full((1, depth), activation, np.uint8), "b": np.full((depth, depth), weight, np.int8)}
    return bool(np.any(session.run(None, feeds)[0] != depth * activation * weight))
