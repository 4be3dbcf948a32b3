#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""make_models.py FOLDER COMPARE CLUSTER NAME...: writes models of torchvision, in training, by both sources and compares them.

For each NAME, FOLDER gets NAME.json from export_fx.py and, traced by PyTorch, NAME.loss.pt; the first also NAME.pt, without the loss. Parameters
are views of one number each, so that the files are small. Exits with 77 where torchvision is missing.
"""
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    import torch
    import torchvision
except ImportError as error:
    print(error)
    sys.exit(77)
import export_fx

BATCH, TRACED_BATCH, SIZE = 64, 1, 224


class Training(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, target):
        return torch.nn.functional.cross_entropy(self.model(x), target, reduction="sum")


class Classifier(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def materialise(module):
    for owner in module.modules():
        for name, p in owner._parameters.items():
            if p is not None:
                owner._parameters[name] = torch.nn.Parameter(torch.zeros(()).expand(p.shape), p.requires_grad)
        for name, b in owner._buffers.items():
            if b is not None:
                owner._buffers[name] = torch.zeros(b.shape, dtype=b.dtype)


def inputs(batch, device="cpu"):
    return {"x": torch.zeros(batch, 3, SIZE, SIZE, device=device), "target": torch.zeros(batch, dtype=torch.int64, device=device)}


def make(folder, name, without_loss):
    with export_fx.meta_device():
        model = getattr(torchvision.models, name)()
    if name == "resnet50":  # frozen parameters are kept as such
        model.conv1.weight.requires_grad_(False)
    training = Training(model)
    export_fx.write(export_fx.export(training, inputs(BATCH, "meta"), name), folder / f"{name}.json")
    materialise(training)
    x, target = inputs(TRACED_BATCH).values()
    torch.jit.trace(training, (x, target), check_trace=False).save(str(folder / f"{name}.loss.pt"))
    if without_loss:
        torch.jit.trace(Classifier(model), (x,), check_trace=False).save(str(folder / f"{name}.pt"))


def main(folder, compare, cluster, *names):
    warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(folder, name, without_loss=name == names[0])
    return subprocess.run([compare, str(folder), cluster, *names], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
