#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares operators with PyTorch: value and gradients of each, called as a function, as a method and by keywords.

    compare_values.py EVALUATE [NAME...]

Each operator of the table below is exported by export_fx.py in every form that PyTorch has for it and run by EVALUATE with the same values."""

import copy
import sys
import warnings

import comparison
import torch
import torch.nn.functional as F
from comparison import export_fx


def row(names, *operands, **arguments):
    """Operators of these names, on tensors of these shapes, with these arguments in the order of the signature; `by` names the operands.
    Elements are in [0.5, 1.5); [(bound, *shape)] is a tensor of integers below the bound, {shape} a constant one, [shape, shape, ...] a list of tensors."""
    by = arguments.pop("by", "input other".split())
    return [(name, operands, dict(arguments), by) for name in names.split()]


class Written:
    """What has no function's name, or of whose results not all are used."""

    @staticmethod
    def pairs(x, rows, columns):
        """Elements by two tensors of places that broadcast."""
        return x[rows, columns]

    @staticmethod
    def bits(a, b, x):
        """Bit by bit; the operators are no functions of floating-point numbers."""
        return x * ((a & b) + (a | 5) + (a ^ b) + ~a)

    @staticmethod
    def attention(x, packed, packed_bias, out, out_bias):
        """Self-attention of two heads and its weights."""
        return F.multi_head_attention_forward(x, x, x, 6, 2, packed, packed_bias, None, None, False, 0.0, out, out_bias)

    @staticmethod
    def attention_across(x, y, packed, out, out_bias, mask, absent, causal):
        """Attention to another sequence, with numbers added to scores, some places left out, and a mask of truth values."""
        of = lambda value, **named: F.multi_head_attention_forward(
            x, y, value, 6, 3, packed, None, None, None, False, 0.0, out, out_bias, need_weights=False, **named)[0]
        return of(y, attn_mask=mask) + of(2 * y, key_padding_mask=absent == 4) + of(y, attn_mask=causal == 4, key_padding_mask=absent == 4)

    @staticmethod
    def attention_alone(x, packed, packed_bias, out, out_bias):
        """The same, its weights used by nobody."""
        return Written.attention(x, packed, packed_bias, out, out_bias)[0]


X = (3, 4)
TABLE = sum((
    row("relu tanh sigmoid exp sqrt log rsqrt reciprocal expm1 log1p log2 log10 exp2 sin cos tan atan sinh cosh erf erfc trunc abs square neg sign floor ceil round clone", X),
    row("gelu silu relu6 hardsigmoid hardswish mish selu logsigmoid softsign tanhshrink", X),
    row("leaky_relu", X, negative_slope=0.3), row("elu celu", X, alpha=0.7), row("softplus", X, beta=2.0, threshold=2.5),
    row("hardtanh", X, min_val=0.7, max_val=1.2), row("clamp", X, min=0.7, max=1.2), row("clamp_min", X, min=0.9), row("clamp_max", X, max=0.9),
    row("pow", X, exponent=2.5), row("softshrink hardshrink", X, lambd=0.8), row("threshold", X, threshold=0.8, value=2.0),
    row("atan2 logaddexp", X, (4,)), row("lerp", X, (4,), weight=0.3, by=["input", "end"]), row("lerp", X, (4,), (3, 1), by=["input", "end", "weight"]),
    row("add sub mul div maximum minimum", X, (4,)), row("add sub", X, X, alpha=2.0), row("mul div", X, other=2.5),
    row("remainder", X, other=0.4), row("remainder", X, other=-0.4), row("div", X, other=-0.4, rounding_mode="floor"),
    row("softmax log_softmax cumsum", X, dim=-1), row("layer_norm", X, normalized_shape=[4]), row("group_norm", (2, 4, 3), num_groups=2),
    row("sum mean amax amin logsumexp", (2, 3, 4), dim=[0, -1], keepdim=True), row("sum mean prod", X), row("prod", X, dim=1, keepdim=True),
    row("var std", (2, 3, 4), dim=1, unbiased=False, keepdim=True), row("var std", (2, 3, 4), dim=[0, 2], unbiased=True),
    row("max min", X), row("max min", X, dim=1, keepdim=True), row("topk", X, k=2, dim=1), row("norm", X, p=2, dim=1, keepdim=True),
    row("matmul", (2, 3, 4), (4, 5)), row("mm", X, (4, 5), by=["input", "mat2"]), row("bmm", (2, 3, 4), (2, 4, 5), by=["input", "mat2"]),
    row("mv", X, (4,), by=["input", "vec"]), row("dot", (4,), (4,), by=["input", "tensor"]), row("linear", X, (5, 4), (5,), by=["input", "weight", "bias"]),
    row("addmm", (3, 5), X, (4, 5), beta=0.5, alpha=2.0, by=["input", "mat1", "mat2"]),
    row("conv1d", (2, 4, 6), (6, 2, 3), (6,), stride=2, padding=1, dilation=1, groups=2, by=["input", "weight", "bias"]),
    row("conv2d", (2, 4, 6, 5), (6, 2, 3, 2), (6,), stride=[2, 1], padding=1, dilation=1, groups=2, by=["input", "weight", "bias"]),
    row("conv_transpose2d", (2, 4, 3, 3), (4, 2, 3, 2), (4,), stride=2, padding=1, output_padding=0, groups=2, by=["input", "weight", "bias"]),
    row("embedding", [(7, 3, 2)], (7, 4), by=["input", "weight"]), row("embedding", [(7, 3, 2)], (7, 4), padding_idx=2, by=["input", "weight"]),
    row("embedding", [(7, 3, 2)], (7, 4), padding_idx=-1, by=["input", "weight"]),
    row("max_pool2d avg_pool2d", (2, 3, 6, 6), kernel_size=3, stride=2, padding=1), row("adaptive_avg_pool2d", (2, 3, 5, 6), output_size=2),
    row("cross_entropy", X, [(4, 3)], by=["input", "target"]), row("nll_loss", X, [(4, 3)], by=["input", "target"]),
    row("cross_entropy", X, [(4, 3)], weight=None, size_average=None, ignore_index=2, reduce=None, reduction="sum", label_smoothing=0.1,
        by=["input", "target"]),
    row("mse_loss l1_loss smooth_l1_loss kl_div", X, X, size_average=None, reduce=None, reduction="sum", by=["input", "target"]),
    row("huber_loss", X, X, reduction="sum", delta=0.3, by=["input", "target"]),
    row("binary_cross_entropy_with_logits", X, X, by=["input", "target"]),
    row("transpose", (2, 3, 4), dim0=0, dim1=-1), row("permute", (2, 3, 4), dims=[2, 0, 1]), row("t", X), row("reshape", X, shape=[2, -1]),
    row("flatten", (2, 3, 4), start_dim=1), row("unflatten", X, dim=1, sizes=[2, 2]), row("squeeze", (3, 1, 4), dim=1), row("unsqueeze", X, dim=-1),
    row("tile", X, dims=[2, 3]), row("repeat_interleave", X, repeats=2, dim=1), row("roll", X, shifts=1, dims=1), row("flip", X, dims=[1]),
    row("pad", X, pad=[1, 2], mode="constant", value=1.5),
    row("split", (3, 6), split_size_or_sections=2, dim=-1, by=["tensor"]), row("split", (3, 6), split_size_or_sections=[1, 5], dim=1, by=["tensor"]),
    row("chunk", (3, 6), chunks=3, dim=1), row("unbind", X, dim=1), row("select", X, dim=1, index=-2), row("narrow", X, dim=1, start=1, length=2),
    row("index_select", X, dim=1, index=[(4, 5)]), row("gather", X, dim=1, index=[(4, 3, 2)]), row("triu tril", X, diagonal=1),
    row("index_add", X, dim=1, index=[(4, 5)], source=(3, 5)), row("scatter_add", X, dim=1, index=[(4, 3, 2)], src=(3, 2)),
    row("index_add", X, dim=1, index=[(4, 5)], source=(3, 5), alpha=1), row("addcmul", X, X, X, value=0.5, by=["input", "tensor1", "tensor2"]),
    row("baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5), beta=0.5, alpha=2.0, by=["input", "batch1", "batch2"]),
    row("expand", X, size=[2, -1, 4]), row("normalize", X, p=2.0, dim=1), row("cosine_similarity", X, (4,), dim=1, by=["x1", "x2"]), row("softmin", X, dim=1),
    row("_weight_norm", X, (3, 1), dim=0, by=["v", "g"]), row("_weight_norm", X, (1, 4), dim=1, by=["v", "g"]),
    row("var_mean std_mean", (2, 3, 4), dim=[0, 2], unbiased=True, keepdim=True), row("var_mean", X, unbiased=False),
    row("max_pool1d", (2, 3, 6), kernel_size=2, return_indices=True), row("max_pool2d", (2, 3, 6, 4), kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False, return_indices=True),
    row("adaptive_max_pool2d", (2, 3, 5, 4), output_size=2, return_indices=True),
    row("sort", X, dim=1, descending=True), row("sort", X, stable=True, dim=0), row("bilinear", (2, 3, 4), (2, 3, 5), (6, 4, 5), (6,), by="input1 input2 weight bias".split()),
    row("binary_cross_entropy_with_logits", X, X, weight={(4,)}, reduction="sum", pos_weight={(3, 1)}, by=["input", "target"]),
    row("binary_cross_entropy_with_logits", X, X, weight={(3, 4)}, by=["input", "target"]),
    *(row("cross_entropy", X, X, weight=(4,), size_average=None, ignore_index=-100, reduce=None, reduction=reduction, label_smoothing=0.1, by=["input", "target"])
      for reduction in ("none", "mean")),
    row("pairs", X, [(3, 5)], [(4, 2, 1)], by=["x", "rows", "columns"]), row("bits", [(16, 3, 4)], [(16, 4)], X, by=["a", "b", "x"]),
    row("attention attention_alone", (5, 2, 6), (18, 6), (18,), (6, 6), (6,), by=["x", "packed", "packed_bias", "out", "out_bias"]),
    row("attention_across", (5, 2, 6), (4, 2, 6), (18, 6), (6, 6), (6,), (5, 4), [(5, 2, 4)], [(5, 5, 4)], by=["x", "y", "packed", "out", "out_bias", "mask", "absent", "causal"]),
    row("lstm", (5, 2, 3), hx=[(4, 2, 2), (4, 2, 2)], params=[(8, 3), (8, 2), (8,), (8,)] * 2 + [(8, 4), (8, 2), (8,), (8,)] * 2,
        has_biases=True, num_layers=2, dropout=0.0, train=True, bidirectional=True, batch_first=False),
    row("gru", (2, 5, 3), hx=(2, 2, 2), params=[(6, 3), (6, 2), (6, 2), (6, 2)], has_biases=False, num_layers=2, dropout=0.5, train=False, bidirectional=False,
        batch_first=True),
    row("rnn_tanh rnn_relu", (2, 5, 3), hx=(2, 2, 2), params=[(2, 3), (2, 2), (2,), (2,)] * 2, has_biases=True, num_layers=1, dropout=0.0, train=True,
        bidirectional=True, batch_first=True),
    row("embedding_bag", [(7, 3, 2)], (7, 4), offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", by=["input", "weight"]),
    row("embedding_bag", [(7, 3, 2)], (7, 4), offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="sum", sparse=False,
        per_sample_weights=(3, 2), include_last_offset=False, padding_idx=2, by=["input", "weight"]),
    row("scatter", (3, 7), dim=1, index=[(7, 3, 1)], src=(3, 1)), row("scatter", (3, 7), dim=1, index=[(7, 3, 2)], value=1.5),
    row("pixel_shuffle", (2, 8, 2, 3), upscale_factor=2), row("pixel_unshuffle", (2, 2, 4, 6), downscale_factor=2),
    row("diagonal", (3, 4, 5), offset=-1, dim1=-1, dim2=0),
), [])


def drawn(operand):
    if isinstance(operand, list):
        return torch.randint(0, operand[0][0], operand[0][1:])
    if isinstance(operand, set):
        return torch.rand(*operand, dtype=torch.float64) + 0.5
    return torch.nn.Parameter(torch.rand(operand, dtype=torch.float64) + 0.5)


def is_tensor(argument):
    return isinstance(argument, (tuple, set)) or isinstance(argument, list) and len(argument) == 1 and isinstance(argument[0], tuple)


def is_list(argument):
    return isinstance(argument, list) and len(argument) > 1 and all(isinstance(item, tuple) for item in argument)


def tensors_in(argument):
    return argument if is_list(argument) else [argument] if is_tensor(argument) else []


def forms(name, first, arguments, by):
    """Every way to write a call: (how, what makes it of the list of tensors). The first tensors are operands, the others arguments."""
    def full(tensors):
        rest = iter(tensors[first:])
        return {key: [next(rest) for _ in value] if is_list(value) else next(rest) if is_tensor(value) else value for key, value in arguments.items()}

    functions = {f"{home.__name__}.{name}": getattr(home, name) for home in (torch, F, Written) if getattr(getattr(home, name, None), "__doc__", None)}
    if not functions and not hasattr(torch.Tensor, name):
        functions[f"torch.{name}"] = getattr(torch, name)  # what modules call
    for shown, function in functions.items():
        yield shown, lambda t, f=function: f(*t[:first], *full(t).values())
        yield shown + " with named arguments", lambda t, f=function: f(*t[:first], **full(t))
        yield shown + " by keywords", lambda t, f=function: f(**dict(zip(by, t[:first])), **full(t))
    if hasattr(torch.Tensor, name):
        yield "." + name, lambda t: getattr(t[0], name)(*t[1:first], *full(t).values())
        yield "." + name + " with named arguments", lambda t: getattr(t[0], name)(*t[1:first], **full(t))


def add_forms(found, name, operands, arguments, by):
    """Adds each form to the comparison; whether there is any."""
    torch.manual_seed(1)
    values = [drawn(operand) for operand in [*operands, *(t for a in arguments.values() for t in tensors_in(a))]]
    count = len(found.cases)
    for shown, call in forms(name, len(operands), arguments, by):
        try:
            own = {f"operand_{i}": copy.deepcopy(v) for i, v in enumerate(values)}
            module = comparison.Operator(lambda given, c=call: c(list(given.values())), own)
        except (TypeError, RuntimeError):
            continue  # not one of PyTorch's forms
        found.add(f"{shown} {arguments}", module)
    return len(found.cases) > count


def main(evaluate, only):
    warnings.simplefilter("ignore")
    found = comparison.Comparison(evaluate)
    for name, operands, arguments, by in TABLE:
        try:
            if (not only or name in only) and not add_forms(found, name, operands, arguments, by):
                found.failures.append(f"{name} {arguments}: PyTorch has no such form")
        except export_fx.ExportError as error:
            found.failures.append(f"{name} {arguments}: {error}")
    return found.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
