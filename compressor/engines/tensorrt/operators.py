"""Which operators, attributes and types of ONNX TensorRT takes: tables for `check`.

Source, where none other is given: onnx/onnx-tensorrt, docs/operators.md for TensorRT 10.15 (February 2026), and the
parser and builder of tensorrt-rtx 1.7.1, asked of each operator of ONNX, each type and each attribute here. What a new
version takes or refuses is an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

OPSET = 7
"""The first that the parser knows; NVIDIA's list begins with 9, tensorrt-rtx reads 7 and 8 without a warning."""
UNSUPPORTED = frozenset(
    {"AffineGrid", "Bernoulli", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CenterCropPad"}
    | {"Col2Im", "Compress", "ConcatFromSequence", "DFT", "Det", "ImageDecoder", "MaxRoiPool", "MaxUnpool"}
    | {"MelWeightMatrix", "Multinomial", "NegativeLogLikelihoodLoss", "Optional", "OptionalGetElement"}
    | {"OptionalHasElement", "RegexFullMatch", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"}
    | {"SequenceInsert", "SequenceLength", "SequenceMap", "SoftmaxCrossEntropyLoss", "SplitToSequence"}
    | {"StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Unique"}
    # younger than that list; the parser refuses them
    | {"BitCast", "CausalConvWithState", "CumProd", "LinearAttention", "SwiGLU"}
)
INTEGER = frozenset({"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""Not supported either: TensorRT computes integers between Q/DQ nodes only."""
NOT_IN_RTX = frozenset({"DeformConv", "NonMaxSuppression", "NonZero", "RoiAlign"})
"""NVIDIA's list has them; tensorrt-rtx 1.7.1 has no plugin, or no kernel, for them."""
ONE_OUTPUT = frozenset({"BatchNormalization", "LayerNormalization", "MaxPool"})
"""Operators that are refused with more outputs than one."""

ATTRIBUTES: Mapping[str, Mapping[str, frozenset[int | str]]] = {
    "AveragePool": {"dilations": frozenset({1})},
    "BatchNormalization": {"training_mode": frozenset({0})},
    "Constant": {"sparse_value": frozenset()},
    "LSTM": {"input_forget": frozenset({0})},
    "LpPool": {"dilations": frozenset({1}), "p": frozenset({1, 2})},
    "MaxPool": {"dilations": frozenset({1})},
    "Resize": {
        "antialias": frozenset({0}),
        "coordinate_transformation_mode": frozenset(
            {"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"}
        ),
        "keep_aspect_ratio_policy": frozenset({"stretch"}),
    },
    "ScatterElements": {"reduction": frozenset({"none"})},  # others: TensorRT by a plugin that tensorrt-rtx lacks
    "ScatterND": {"reduction": frozenset({"none"})},
}
"""What the values of an attribute may be, where it is given."""
_INTEGERS = frozenset({"INT32", "INT64"})
OPERANDS: Mapping[str, frozenset[str]] = {
    "Celu": frozenset({"FLOAT16", "BFLOAT16"}),  # NVIDIA's list has it, the parser refuses it; "so" below
    "Clip": frozenset({"INT8"}),
    "Gemm": _INTEGERS,
    "GlobalLpPool": frozenset({"BFLOAT16"}),  # so
    "GridSample": _INTEGERS | {"BOOL"},
    "HardSwish": frozenset({"BFLOAT16"}),  # so
    "LpNormalization": frozenset({"BFLOAT16"}),  # so
    "MatMul": _INTEGERS,
    "MeanVarianceNormalization": frozenset({"FLOAT16", "BFLOAT16"}),  # so
    "Mish": frozenset({"BFLOAT16"}),
    "PRelu": _INTEGERS,
    "Range": frozenset({"FLOAT16", "BFLOAT16"}),  # so
    "ReduceL2": _INTEGERS,  # so
    "ReduceMax": frozenset({"BOOL"}),
    "ReduceMin": frozenset({"BOOL"}),
    "Relu": frozenset({"INT32"}),  # so
    "Resize": _INTEGERS | {"BOOL"},
}
"""Types of the first input that an operator is refused with."""

KNOWN: Mapping[str, int] = {
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), 1),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "STFT", "Squeeze", "Unsqueeze"), 1),
}
"""The input that must be known when the engine is built: axes, and the step of STFT."""

TYPES = frozenset({"BFLOAT16", "BOOL", "DOUBLE", "FLOAT", "FLOAT16", "INT32", "INT64", "UINT8"})
"""Types to compute in; DOUBLE becomes FLOAT, without a warning, and UINT8 is for inputs and outputs alone."""
QUANTIZED = frozenset({"FLOAT4E2M1", "FLOAT8E4M3FN", "INT4", "INT8"})
"""Types that Q/DQ nodes convert to and from."""
LEAST: Mapping[str, tuple[int, int]] = {"BFLOAT16": (8, 0), "FLOAT4E2M1": (10, 0), "FLOAT8E4M3FN": (8, 9)}
"""The compute capability from which on there is a type. Source: support matrices of TensorRT and TensorRT-RTX 1.5."""
UINT8 = frozenset({"Cast", "CastLike", "Constant", "Identity", "If", "Loop", "Scan", "Shape", "Size"})
"""Operators that may meet UINT8, where it is an input or output of the model."""

TURING = (7, 5)
PRODUCTS = frozenset({"Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
"""What the builder of tensorrt-rtx refuses in FP32 on Turing ("FP32 GEMM is not supported"); Conv it builds."""
