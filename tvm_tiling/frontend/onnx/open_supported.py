"""ONNX operators whose converters support dynamic shapes like static ones.

Their converters read no extent as a number, or reject what they cannot know; operands that have to agree are matched
when they are emitted.
"""

from __future__ import annotations

_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu
HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh
Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"""
_BINARY = """Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean
Min Mod Mul Or Pow Sub Sum Where Xor"""
_PRODUCTS = "Attention Conv Einsum Gemm MatMul"
_ROWS = """ArgMax ArgMin CumProd CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool Hardmax InstanceNormalization LRN
LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization RMSNormalization ReduceL1 ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax TopK"""
_MOVES = """BitCast Compress Concat Dropout Gather GatherElements GatherND Identity NonMaxSuppression NonZero OneHot
Reshape ReverseSequence Scatter ScatterElements ScatterND Slice Split Squeeze TensorScatter Transpose Trilu Unique
Unsqueeze"""
_SEQUENCES = """ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct
SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence"""
_IMAGES = """AffineGrid AveragePool BatchNormalization Col2Im ConvTranspose DFT DeformConv DepthToSpace Det GridSample
GroupNormalization LpPool MaxPool MaxRoiPool RoiAlign STFT SpaceToDepth"""
_QUANTISED = """ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger MatMulInteger16 QLinearConv
QLinearMatMul QuantizeLinear"""

_CONTRIBUTED = """BiasGelu DequantizeLinear DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedMatMul
GatherBlockQuantized Gelu MatMulIntegerToFloat MatMulNBits QGemm QLinearAdd QLinearAveragePool QLinearConcat
QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu
RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization"""

ANY_SHAPE = frozenset(
    [
        *" ".join((_UNARY, _BINARY, _PRODUCTS, _ROWS, _MOVES, _SEQUENCES, _IMAGES, _QUANTISED)).split(),
        *(f"com.microsoft.{name}" for name in _CONTRIBUTED.split()),
    ]
)
