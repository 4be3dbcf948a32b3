#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Record what PyTorch 2.15 computes of every call in the three tables of operators: graph, values, gradients.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0
    venv/bin/python adapters/pt2/test/record_operators.py adapters/pt2/test/operator_recordings.json.gz

The loss of a call is the sum of its results, each times a trained tensor of random numbers: the gradients of these are the results, and they are
the cotangents of the call. Everything is float64 on the CPU. Values have four decimals, so that they are exact in few digits, and differ from each
other, so that maxima and orders are unique. The graph is what torch.export makes of the call, as torch.export.save writes it.
"""

import argparse
import gzip
import io
import json
import math
import random
import sys
import zipfile
import zlib
from pathlib import Path

import torch

RELEASE = "2.15.0"
TABLES = ("training_operators.txt", "core_operators.txt", "other_operators.txt")
TYPES = {"f": torch.float64, "i": torch.int64, "j": torch.int32, "b": torch.bool, "c": torch.complex128, "d": torch.float64}
SCALAR_TYPES = {4: torch.int32, 5: torch.int64, 7: torch.float64, 8: torch.float64, 12: torch.bool}

# What has no values to compare: random numbers, and memory as it was found.
WITHOUT_VALUES = set(
    "aten.bernoulli.p aten.bernoulli_.float aten.exponential_.default aten.rand.default aten.randn.default aten.randperm.default aten.empty.memory_format aten.empty_like.default "
    "aten.empty_permuted.default aten.empty_strided.default aten.new_empty.default".split())

# Where a call is made otherwise, so that its results are finite numbers that do not depend on chance.
CHANGES = {
    "aten.dropout.default": ("train=true", "train=false"),
    "aten.native_dropout.default": ("train=true", "train=false"),
    "aten.histc.default": ("self=j(6)", "self=f(6)"),  # PyTorch has no other on the CPU
    "aten.masked_fill.Scalar": ("value=-inf", "value=-1.5"),
    "aten.scalar_tensor.default": ("s=-inf", "s=-1.5"),
    "aten.where.ScalarOther": ("other=-inf", "other=-1.5"),
    "aten.to.device": ("device=dev ", "device='cpu' "),
}

# From where to where values are drawn, if not from -1.5 to 1.5.
RANGES = {
    **dict.fromkeys("acos asin atanh logit".split(), (-0.9, 0.9)),
    **dict.fromkeys("log log2 log10 log1p sqrt rsqrt reciprocal pow div div_ fmod remainder".split(), (0.2, 2.0)),
    "acosh": (1.1, 3.0), "binary_cross_entropy_with_logits": (0.1, 0.9), "histc": (0.0, 3.0),
}

# One more than the greatest integer that is drawn, if not 10: places are in what they are places of.
BOUNDS = {
    "embedding": 9, "embedding_bag": 9, "_embedding_bag": 9, "cross_entropy_loss": 5, "gather": 3, "index": 3, "index_add": 4, "index_put": 3, "index_select": 4,
    "scatter": 4, "scatter_add": 4, "scatter_reduce": 4,
}
# Integers that are all different: places that are written once, and numbers that are sorted.
ORDERS = {"aten.index_put_.default", "aten.sort.default", "aten.scatter_.value", "aten.scatter.src", "aten.scatter.value"}
# Results behind the first are of use to a backward pass alone.
FIRST_ONLY = set("native_dropout native_group_norm native_layer_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
                 "_native_batch_norm_legit_no_training embedding_bag _embedding_bag".split())

# What PyTorch has no derivative of.
UNTRAINED = {"aten.copy.default"}


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def grouped_product(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Rows up to each end times the matrix of that end."""
    return torch.cat([rows @ matrix for rows, matrix in zip(torch.tensor_split(input, offs[:-1].long()), weight)])


@grouped_product.register_fake
def _(input, weight, offs):
    return input.new_empty(input.shape[0], weight.shape[2])


def hold_operands(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def grouped_product_backward(ctx, cotangent):
    input, weight, offs = ctx.saved_tensors
    ends = offs[:-1].long()
    pieces = list(zip(torch.tensor_split(input, ends), torch.tensor_split(cotangent, ends), weight))
    return torch.cat([g @ w.T for _, g, w in pieces]), torch.stack([x.T @ g for x, g, _ in pieces]), None


grouped_product.register_autograd(grouped_product_backward, setup_context=hold_operands)


def split(text, separator):
    """At separators outside brackets, without empty parts."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def is_tensor(text):
    return text[:1] in TYPES and text[1:2] == "("


class Operands:
    """Draws the tensors of one call and holds them by name."""

    def __init__(self, target):
        self.target, self.name = target, target.split(".")[1].rstrip("_") if target.startswith("aten.") else target
        self.name = "__and__" if target.startswith("aten.__and__") else self.name
        self.random = random.Random(zlib.crc32(target.encode()))
        self.tensors, self.trained = {}, set()

    def floating(self, shape, low=-1.5, high=1.5):
        """Different numbers, none of them a half or a whole, where steps and kinks are."""
        steps = range(math.ceil(low * 10000), math.floor(high * 10000))
        values = self.random.sample([n / 10000 for n in steps if n % 5000 != 0], math.prod(shape))
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    def integers(self, shape, argument):
        count = math.prod(shape)
        if argument == "offsets":
            return torch.tensor([0, 3]), False
        if argument == "offs":
            return torch.tensor([1, 4, 6]), False
        if self.target in ORDERS and argument != "values":
            rows = [self.random.sample(range(max(shape[-1], 4 if self.name == "scatter" else 0)), shape[-1]) for _ in range(count // shape[-1])]
            if self.name == "scatter" and shape == [2, 3]:  # along the first dimension
                rows = [list(row) for row in zip(*(self.random.sample(range(4), 2) for _ in range(3)))]
            return torch.tensor(rows), True
        return torch.tensor([self.random.randrange(BOUNDS.get(self.name, 10)) for _ in range(count)]), True

    def add(self, text, argument):
        kind, shape = text[0], [int(size) for size in split(text[2:-1], ",")]
        name = f"x{len(self.tensors)}"
        if kind in "fdc":
            low, high = RANGES.get(self.name, (-1.5, 1.5))
            if argument == "running_var":
                low, high = 0.5, 1.5
            value = self.floating(shape + [2] * (kind == "c"), low, high)
            if not argument.startswith("running") and self.target not in UNTRAINED:
                self.trained.add(name)
        elif kind == "b":
            value = torch.tensor([self.random.random() < 0.5 for _ in range(math.prod(shape))]).reshape(shape)
            if argument == "attn_mask":
                value = torch.ones(shape, dtype=torch.bool).tril()
        else:
            value = self.integers(shape, argument)[0].reshape(shape).to(TYPES[kind])
        self.tensors[name] = value
        return (lambda held: torch.view_as_complex(held[name])) if kind == "c" else lambda held: held[name]

    def argument(self, text, name):
        """What takes the tensors by name to the value of an argument."""
        if is_tensor(text):
            return self.add(text, name)
        if text.startswith(("?[", "[")):
            items = [self.argument(item, name) for item in split(text[text.index("[") + 1 : -1], ",")]
            return lambda held: [item(held) for item in items]
        if text[0] in "({":
            value = [json.loads(item) for item in split(text[1:-1], ",")]
        elif text.startswith("ty"):
            value = SCALAR_TYPES[int(text[2:])]
        elif text[0] == "'":
            value = text[1:-1]
        else:
            value = {"none": None, "true": True, "false": False, "inf": math.inf, "-inf": -math.inf}.get(text)
            if text not in ("none", "true", "false", "inf", "-inf"):
                value = json.loads(text)
        if name == "layout":
            value = torch.strided
        return lambda held: value


def tensors_in(result):
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from tensors_in(part)


class Call(torch.nn.Module):
    """The loss of one call."""

    def __init__(self, line):
        super().__init__()
        target, *arguments = split(line.split(" ->")[0], " ")
        for part in target.split("."):
            self.call = getattr(getattr(self, "call", torch.ops), part)
        self.target, self.operands = target, Operands(target)
        self.arguments = {name: self.operands.argument(value, name) for name, value in (split(a, "=") for a in arguments)}
        for name, value in self.operands.tensors.items():
            if name in self.operands.trained:
                setattr(self, name, torch.nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        with torch.no_grad():
            for number, part in enumerate(self.results()):
                setattr(self, f"c{number}", torch.nn.Parameter(self.operands.floating(list(part.shape))))

    def results(self):
        given = {name: value(dict(self.named_parameters()) | dict(self.named_buffers())) for name, value in self.arguments.items()}
        name = self.target.split(".")[1]
        first = next(iter(given))
        if name.endswith("_") and not name.endswith("__"):
            given[first] = given[first].clone()
        result = self.call(**given)
        if result is None:
            return [given[first]]
        found = list(tensors_in(result))[: 1 if name in FIRST_ONLY else None]
        return [torch.view_as_real(part) if part.is_complex() else part if part.dtype == torch.float64 else part.to(torch.float64) for part in found]

    def forward(self):
        return sum((part * getattr(self, f"c{number}")).sum() for number, part in enumerate(self.results()))


class WithoutGradients(Call):
    """A graph that is called without derivatives, and items of its results."""

    def __init__(self):
        super().__init__("aten.split.Tensor self=f(2,6) split_size=3 dim=1 -> [f(2,3),f(2,3)]")
        self.target = "wrap_with_set_grad_enabled"

    def results(self):
        with torch.no_grad():
            first, second = torch.chunk(self.x0 * 2, 2, 1)
            turned = first.sin()
        return [turned * self.x0[:, :3], second]


def graph_of(program):
    """What torch.export.save writes of the graph, without what a reader makes no use of."""
    archive = io.BytesIO()
    torch.export.save(program, archive)
    with zipfile.ZipFile(archive) as entries:
        name = next(name for name in entries.namelist() if name.endswith("models/model.json"))
        graph = json.loads(entries.read(name))

    def strip(nodes):
        for node in nodes:
            node["metadata"] = {key: value for key, value in node["metadata"].items() if key == "nn_module_stack"}

    strip(graph["graph_module"]["graph"]["nodes"])
    return {"schema_version": graph["schema_version"], "graph_module": {key: graph["graph_module"][key] for key in ("graph", "signature")}}


def numbers(tensor):
    return [round(value, 4) for value in tensor.double().flatten().tolist()]


def short(value):
    return float(f"{value:.13g}")


def recording(module):
    values = {name: numbers(t.detach()) for name, t in [*module.named_parameters(), *module.named_buffers()]}
    graph = graph_of(torch.export.export(module, (), strict=False))
    loss = module()
    loss.backward()
    gradients = {name: [short(v) for v in p.grad.flatten().tolist()] for name, p in module.named_parameters() if p.grad is not None}
    if not all(math.isfinite(v) for of in gradients.values() for v in of):
        raise ValueError("results or gradients are no finite numbers")
    return {"call": module.target, "graph": graph, "values": values, "loss": short(loss.item()), "gradients": gradients}


def calls():
    for table in TABLES:
        for line in (Path(__file__).parent / table).read_text().splitlines():
            target = line.split(" ")[0]
            if not line or line[0] == "#" or target in WITHOUT_VALUES:
                continue
            yield line.replace(*CHANGES[target]) if target in CHANGES else line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="the file to write, JSON compressed with gzip")
    options = parser.parse_args()
    if torch.__version__.split("+")[0] != RELEASE:
        sys.exit(f"record_operators: this is PyTorch {torch.__version__}, expected {RELEASE}")
    made, failed = [recording(WithoutGradients())], 0
    for line in calls():
        try:
            made.append(recording(Call(line)))
        except Exception as error:  # whatever PyTorch says of the call
            print(f"record_operators: {line}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            failed += 1
    text = json.dumps({"torch": RELEASE, "calls": made}, separators=(",", ":"))
    Path(options.out).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(made)} calls recorded, {len(WITHOUT_VALUES)} have no values, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
