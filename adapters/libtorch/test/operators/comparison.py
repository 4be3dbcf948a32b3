# SPDX-License-Identifier: BSL-1.0
"""Calls exported by export_fx.py and run with the reference kernels, beside PyTorch: value and gradients."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "adapters" / "libtorch"))

try:
    import torch
except ImportError:
    sys.exit(77)

import export_fx

TOLERANCE = 1e-8


class Operator(torch.nn.Module):
    """A trained parameter times the weighted sum of what a call yields, and of its squares. The call takes operands by name: modules, trained
    parameters, and tensors, which are not trained."""

    def __init__(self, call, operands):
        super().__init__()
        self.call, self.names = call, list(operands)
        self.factor = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        for name, value in operands.items():
            if isinstance(value, (torch.nn.Module, torch.nn.Parameter)):
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)
        with torch.no_grad():
            for i, part in enumerate(self.parts()):
                self.register_buffer(f"factor_{i}", torch.rand(part.shape, dtype=torch.float64))

    def parts(self):
        result = self.call({name: getattr(self, name) for name in self.names})
        return [part if part.dtype == torch.float64 else part.to(torch.float64) for part in tensors_in(result)]

    def forward(self):
        return self.factor * sum(((part + part * part * 0.5) * getattr(self, f"factor_{i}")).sum() for i, part in enumerate(self.parts()))


def tensors_in(result):
    if isinstance(getattr(result, "value", result), torch.Tensor):  # what a traced value stands for
        yield result
    elif result is not None:
        for part in result:
            yield from tensors_in(part)


def numbers(tensor):
    return tensor.detach().double().flatten().tolist()


class Comparison:
    """Cases are added, then run together by the program `evaluate`; `failures` has a line for each that differs."""

    def __init__(self, evaluate):
        self.evaluate, self.cases, self.failures, self.in_full = evaluate, [], [], 0
        self.folder = tempfile.TemporaryDirectory()

    def add(self, shown, module, may_be_in_full=False):
        """Raises ExportError."""
        loss = module()
        loss.backward()
        expected = {"loss": loss.item(), "gradients": {key: numbers(p.grad) for key, p in module.named_parameters() if p.grad is not None}}
        constants = {}

        class Tracer(export_fx.TrainingTracer):
            def source(self, tensor):
                proxy = super().source(tensor)
                if proxy.node.op == "get_attr":  # what forward makes on the device of a traced value has no contents: the zeros of PyTorch's cells
                    constants[proxy.node.target] = numbers(torch.zeros(tensor.shape) if tensor.is_meta else tensor)
                return proxy

        stem = f"{self.folder.name}/{len(self.cases)}"
        with torch.no_grad():
            values = {key: numbers(t) for key, t in [*module.named_parameters(), *module.named_buffers()]}
        export_fx.write(export_fx.export(module, {}, shown, tracer=Tracer), f"{stem}.json")
        Path(f"{stem}.values").write_text(json.dumps({**constants, **values}))
        self.cases.append((shown, f"{stem}.json {stem}.values\n", expected, may_be_in_full))

    def run(self):
        answers = subprocess.run([self.evaluate], input="".join(case[1] for case in self.cases), capture_output=True, text=True).stdout.splitlines()
        if len(answers) != len(self.cases):
            self.failures.append(f"{self.cases[len(answers)][0]}: the evaluation ended here")
        for (shown, _, expected, may_be_in_full), answer in zip(self.cases, answers):
            answer = json.loads(answer)
            if may_be_in_full and "has no rule for these arguments and is computed in full" in answer.get("error", ""):
                self.in_full += 1
                continue
            problem = difference(answer, expected)
            if problem:
                self.failures.append(f"{shown}: {problem}")
        print(*self.failures, f"{len(answers) - self.in_full} calls compared, {self.in_full} computed in full, {len(self.failures)} differ", sep="\n")
        return 1 if self.failures else 0


def difference(found, expected):
    if "error" in found:
        return found["error"]
    pairs = [("the loss", [found["loss"]], [expected["loss"]])]
    pairs += [(f"the gradient of {key}", found["gradients"].get(key, [0.0] * len(of)), of) for key, of in expected["gradients"].items()]
    for what, ours, theirs in pairs:
        if any(a is None or not abs(a - b) <= TOLERANCE * max(1.0, *map(abs, theirs)) for a, b in zip(ours, theirs)):
            return f"{what} is {ours}, expected {theirs}"
    return None
