#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares calls with PyTorch: value and gradients of each expression in the tables of calls/.

    compare_calls.py EVALUATE [TABLE...]

A table has blocks with an empty line between them. A block names operands, `x = some(3, 4)`, made anew for each of the calls below it:

    some(*shape), signed(*shape)       trained elements in [0.5, 1.5), in [-1, 1)
    fixed(*shape)                      elements in [0.5, 1.5) of which PyTorch knows no gradient
    below(n, *shape), truth(*shape)    integers, truth values
    a module, or any tensor            by PyTorch's name

A call is one line; `{a|b}` in it, and in operands, stands for a call with `a` and one with `b`. After `~` it may be computed in full, with one warning,
or have PyTorch's value; after `!` it cannot be exported, and the error says that its contents or shape cannot be known."""

import itertools
import re
import sys
import warnings
from pathlib import Path

import comparison
import torch
from comparison import export_fx
from torch import nn
from torch.nn import functional as F

REFUSED = re.compile("needs? the contents|contents of a tensor are needed|cannot be run on the meta device")


def fixed(*shape):
    return torch.rand(shape, dtype=torch.float64) + 0.5


def some(*shape):
    return nn.Parameter(fixed(*shape))


def signed(*shape):
    return nn.Parameter(torch.rand(shape, dtype=torch.float64) * 2 - 1)


def below(bound, *shape):
    return torch.randint(0, bound, shape)


def truth(*shape):
    return torch.rand(shape) < 0.5


def tensor(values, dtype=None):
    return torch.tensor(values, dtype=dtype)


NAMES = {"torch": torch, "nn": nn, "F": F, "some": some, "signed": signed, "fixed": fixed, "below": below, "truth": truth, "tensor": tensor}


def alternatives(line):
    """The line with one of each `{a|b}`."""
    parts = re.split(r"\{([^{}]*)\}", line)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def read_table(text):
    """(call, the mark before it, expressions of its operands by name) for each call."""
    for block in re.split(r"\n\s*\n", text.strip()):
        operands, lines = {}, []
        for line in (line for line in block.splitlines() if not line.startswith("#")):
            named = re.fullmatch(r"(\w+) = (.*)", line)
            if named:
                operands[named[1]] = alternatives(named[2])
            else:
                lines += alternatives(line)
        for values in itertools.product(*operands.values()):
            for line in lines:
                mark, call = re.fullmatch(r"([~!]? ?)(.*)", line).groups()
                yield call, mark.strip(), dict(zip(operands, values))


def made(call, operands):
    torch.manual_seed(1)
    values = {name: eval(text, NAMES) for name, text in operands.items()}
    values = {name: value.double() if isinstance(value, nn.Module) else value for name, value in values.items()}
    return comparison.Operator(lambda given: eval(call, NAMES, given), values)


def main(evaluate, only):
    warnings.simplefilter("ignore")
    found = comparison.Comparison(evaluate)
    for path in sorted((Path(__file__).parent / "calls").glob("*.txt")):
        if only and path.stem not in only:
            continue
        for call, mark, operands in read_table(path.read_text(encoding="utf-8")):
            shown = f"{path.stem}: {call} with {operands}"
            try:
                found.add(shown, made(call, operands), mark == "~")
                if mark == "!":
                    found.failures.append(f"{shown}: was exported")
            except export_fx.ExportError as error:
                if mark != "!" or not REFUSED.search(str(error)):
                    found.failures.append(f"{shown}: {error}")
            except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
                found.failures.append(f"{shown}: PyTorch has no such call: {export_fx.first_line(error)}")
    return found.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
