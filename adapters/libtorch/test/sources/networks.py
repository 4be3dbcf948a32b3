# SPDX-License-Identifier: BSL-1.0
"""Networks that every source of programs can read: torch.fx, TorchScript and torch.export. Each returns its loss.

    networks.py FOLDER          (PyTorch 2.15) writes FOLDER/NAME.pt2.json.gz of each, the graph that torch.export.save writes"""

import gzip
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    """Convolutions, batch norm, pools and a perceptron."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.hidden, self.out = nn.Linear(64 * 4 * 4, 512), nn.Linear(512, 16)

    def forward(self, x, labels):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.adaptive_avg_pool2d(F.relu(self.conv2(x)), (4, 4))
        return F.cross_entropy(self.out(F.relu(self.hidden(torch.flatten(x, 1)))), labels)


class Attention(nn.Module):
    """Written from products and a softmax."""

    def __init__(self, width, heads, tokens, causal):
        super().__init__()
        self.shape, self.scale = (tokens, heads, width // heads), (width // heads) ** -0.5
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.causal = causal
        if causal:
            self.register_buffer("future", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def forward(self, x):
        q, k, v = (part(x).reshape(-1, *self.shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        if self.causal:
            scores = scores.masked_fill(self.future, -1e9)
        return self.out(torch.matmul(F.softmax(scores, dim=-1), v).transpose(1, 2).reshape(-1, self.shape[0], self.out.in_features))


class Layer(nn.Module):
    def __init__(self, width, heads, tokens, causal):
        super().__init__()
        self.attention = Attention(width, heads, tokens, causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = Layer(128, 4, 32, False), nn.Linear(128, 128)

    def forward(self, x, target):
        return F.mse_loss(self.out(self.layer(x)), target)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(512, 128), nn.Parameter(torch.zeros(32, 128))
        self.layers = nn.Sequential(*(Layer(128, 4, 32, True) for _ in range(2)))
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, 512, bias=False)

    def forward(self, tokens, labels):
        x = self.norm(self.layers(self.tokens(tokens) + self.places))
        return F.cross_entropy(self.out(x).reshape(-1, 512), labels.reshape(-1))


# Factories, and the inputs by name: sizes and type.
NETWORKS = {
    "classifier": (Classifier, {"x": ((64, 3, 16, 16), torch.float32), "labels": ((64,), torch.int64)}),
    "encoder": (Encoder, {"x": ((64, 32, 128), torch.float32), "target": ((64, 32, 128), torch.float32)}),
    "gpt": (Gpt, {"tokens": ((64, 32), torch.int64), "labels": ((64, 32), torch.int64)}),
}


def network(name):
    """The module in training, and its inputs."""
    torch.manual_seed(1)
    factory, inputs = NETWORKS[name]
    return factory().train(), {key: torch.zeros(shape, dtype=dtype) for key, (shape, dtype) in inputs.items()}


def main(folder):
    root = Path(__file__).resolve().parents[4]
    sys.path[:0] = [str(root / "adapters" / "libtorch"), str(root / "adapters" / "pt2" / "test")]
    import json

    import export_pt2
    import record_operators

    for name in NETWORKS:
        text = json.dumps(record_operators.graph_of(export_pt2.export(*network(name))), separators=(",", ":"))
        (Path(folder) / f"{name}.pt2.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
