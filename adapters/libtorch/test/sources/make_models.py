#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""make_models.py FOLDER COMPARE CLUSTER NAME...: writes models of torchvision, in training, by both sources and compares them.

`all` stands for every classification model of the installed torchvision, and `-NAME` leaves one out. For each, FOLDER gets NAME.json from
export_fx.py and, traced by PyTorch, NAME.loss.pt; the first also NAME.pt, without the loss. Parameters are views of one number each, so that the
files are small. COMPARE prints a row of a table for each. Exits with 77 where torchvision is missing.
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

BATCH, TRACED_BATCH = 64, 2
AUXILIARY_WEIGHT = 0.3  # of the losses of classifiers beside the main one
TABLE_HEAD = """\
| model | operators | parameters | Gflop | seconds per iteration | seconds to plan |
|---|---:|---:|---:|---:|---:|"""


class Training(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, target):
        loss = lambda scores: torch.nn.functional.cross_entropy(scores, target, reduction="sum")
        scores = self.model(x)
        if isinstance(scores, torch.Tensor) or not isinstance(getattr(scores, "value", scores), tuple):
            return loss(scores)
        main, *others = scores
        return sum((AUXILIARY_WEIGHT * loss(other) for other in others), loss(main))


class Classifier(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def build(name):
    """The model, without memory for its parameters where its constructor computes with none."""
    make = getattr(torchvision.models, name)
    try:
        with export_fx.meta_device():
            return make()
    except NotImplementedError:
        return make()


def materialise(module):
    for owner in module.modules():
        for name, p in owner._parameters.items():
            if p is not None:
                owner._parameters[name] = torch.nn.Parameter(torch.zeros(()).expand(p.shape), p.requires_grad)
        for name, b in owner._buffers.items():
            if b is not None:
                owner._buffers[name] = torch.zeros(b.shape, dtype=b.dtype)


def inputs(name, batch, device="cpu"):
    size = 299 if name == "inception_v3" else 224
    return {"x": torch.zeros(batch, 3, size, size, device=device), "target": torch.zeros(batch, dtype=torch.int64, device=device)}


def make(folder, name, without_loss):
    model = build(name)
    if name == "resnet50":  # frozen parameters are kept as such
        model.conv1.weight.requires_grad_(False)
    training = Training(model)
    export_fx.write(export_fx.export(training, inputs(name, BATCH, "meta"), name), folder / f"{name}.json")
    materialise(training)
    x, target = inputs(name, TRACED_BATCH).values()
    torch.jit.trace(training, (x, target), check_trace=False).save(str(folder / f"{name}.loss.pt"))
    if without_loss:
        torch.jit.trace(Classifier(model), (x,), check_trace=False).save(str(folder / f"{name}.pt"))


def expanded(names):
    chosen = [n for name in names if name[0] != "-" for n in (torchvision.models.list_models(torchvision.models) if name == "all" else [name])]
    return [name for name in chosen if f"-{name}" not in names]


def main(folder, compare, cluster, *names):
    warnings.filterwarnings("ignore")  # of the tracer, of initial weights
    torch.set_num_threads(1)  # the numbers do not matter
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    print(TABLE_HEAD, flush=True)
    failed = []
    for name in (names := expanded(names)):
        try:
            make(folder, name, without_loss=name == names[0])
            subprocess.run([compare, str(folder), cluster, name], check=True)
        except Exception as error:  # the others are compared all the same
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
