# SPDX-License-Identifier: BSL-1.0
"""Modules that the tests of export_fx.py export. Without PyTorch a test that imports this is skipped."""

import json
import sys

from model_files import ModelCase

try:
    import torch
except ImportError:
    sys.exit(77)

import torch.nn.functional as F
from torch import nn

import export_fx


@torch.fx.wrap
def my_scale(x, scale):
    return x * scale


my_scale.heddle_target = "my.scale"
my_scale.heddle_rule = "(b d), (d) -> (b d); 0*1"


class Scaled(nn.Module):
    """The model of examples/formats/model.json."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x, y):
        return F.nll_loss(torch.log_softmax(my_scale(self.linear(x), self.scale), dim=-1), y, reduction="sum")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", torch.zeros(5, 5))

    def forward(self, x, y):
        h = self.embedding(x)
        h, weights = self.attention(h, h, h, attn_mask=self.mask)
        return F.cross_entropy(self.head(h + self.mask.sum()).transpose(1, 2), y) + weights.mean()


SCALED_INPUTS = {"x": torch.zeros(8, 4), "y": torch.zeros(8, dtype=torch.int64)}
TIED_INPUTS = {"x": torch.zeros(6, 5, dtype=torch.int64), "y": torch.zeros(6, 5, dtype=torch.int64)}


def function_module(function):
    """A module with some parameters whose forward is `function`."""

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.linear = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x):
            return function(self, x)

    return Module()


def parameters(model):
    return [node for node in model["nodes"] if node["op"] == "parameter"]


def calls(model):
    return [node["target"] for node in model["nodes"] if node["op"].startswith("call_")]


class ExportCase(ModelCase):
    def export(self, module, inputs):
        model = json.loads(export_fx.encode(export_fx.export(module, inputs)))
        self.check(model)
        self.assertEqual(model["meta"]["n_params"], sum(p.numel() for p in module.parameters()))
        return model

    def export_function(self, function, shape=(8, 4)):
        model = json.loads(export_fx.encode(export_fx.export(function_module(function), {"x": torch.zeros(shape)})))
        self.check(model)
        return model

    def assert_error(self, text, function, inputs=None):
        with self.assertRaises(export_fx.ExportError) as caught:
            export_fx.export(function_module(function), inputs or {"x": torch.zeros(8, 4)})
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)
