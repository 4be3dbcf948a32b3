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


class FusedAttention(nn.Module):
    """Queries, keys and values by one matrix, and groups of heads for each head of keys and values."""

    def __init__(self, width, heads, groups, tokens):
        super().__init__()
        self.heads, self.groups, self.head, self.tokens = heads, groups, width // heads, tokens
        self.packed, self.out = nn.Linear(width, (heads + 2 * groups) * self.head), nn.Linear(width, width)

    def forward(self, x):
        packed = self.packed(x)
        first, second = self.heads * self.head, (self.heads + self.groups) * self.head
        q, k, v = packed[..., :first], packed[..., first:second], packed[..., second:]
        q, k, v = (part.reshape(-1, self.tokens, count, self.head).transpose(1, 2) for part, count in ((q, self.heads), (k, self.groups), (v, self.groups)))
        each = self.heads // self.groups
        k, v = (part.unsqueeze(2).expand(-1, -1, each, -1, -1).reshape(-1, self.heads, self.tokens, self.head) for part in (k, v))
        weights = F.softmax(torch.matmul(q, k.transpose(-2, -1)) * self.head**-0.5, dim=-1)
        return self.out(torch.matmul(weights, v).transpose(1, 2).reshape(-1, self.tokens, self.out.in_features))


class ModuleAttention(nn.Module):
    """PyTorch's own, which it computes by operators that differ from release to release."""

    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


class Block(nn.Module):
    """One attention beside a residual connection, and its loss."""

    def __init__(self, make):
        super().__init__()
        self.attention, self.norm, self.out = make(), nn.LayerNorm(128), nn.Linear(128, 128)

    def forward(self, x, target):
        return F.mse_loss(self.out(self.norm(x + self.attention(x))), target)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16))

    def forward(self, x, labels):
        return F.cross_entropy(self.layers(x), labels)


@torch.jit.script
def grouped_mm(input, weight, offs):
    """The same, where no operator of PyTorch does it."""
    which = torch.bucketize(torch.arange(input.shape[0], device=input.device), offs, right=True)
    return torch.bmm(input.unsqueeze(1), weight[which]).squeeze(1)


@torch.fx.wrap
def numbers_of_rows(input, bins, min, max):
    """How many rows each expert has; without values, PyTorch 1.13 has no shape of that."""
    if input.device.type == "meta" and not hasattr(torch, "_grouped_mm"):
        return input.new_empty(bins)
    return torch.histc(input, bins, min, max)


numbers_of_rows.heddle_target = "torch.histc"


@torch.fx.wrap
def products_of_runs(input, weight, offs):
    """Each run of rows times a matrix of its own; the last argument says where runs end."""
    if hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(input, weight, offs=offs)
    if input.device.type == "meta":
        return input.new_empty(input.shape[0], weight.shape[2])
    return grouped_mm(input, weight, offs)


products_of_runs.heddle_target = "torch._grouped_mm"


class Experts(nn.Module):
    """Tokens, each by two of eight experts: sorted by expert, multiplied run by run, and brought back."""

    def __init__(self, width=128, hidden=256, count=8, choices=2):
        super().__init__()
        self.router, self.count, self.choices = nn.Linear(width, count, bias=False), count, choices
        self.up, self.down = nn.Parameter(torch.zeros(count, width, 2 * hidden)), nn.Parameter(torch.zeros(count, hidden, width))

    def forward(self, x, target):
        tokens = x.reshape(-1, 128)
        weights, ids = torch.topk(F.softmax(self.router(tokens), dim=-1), self.choices, dim=-1)
        experts, order = torch.sort(ids.reshape(-1))
        ends = torch.cumsum(numbers_of_rows(experts.float(), self.count, 0, self.count - 1), 0).to(torch.int32)
        rows = tokens[torch.div(order, self.choices, rounding_mode="floor")]
        gate, other = torch.chunk(products_of_runs(rows, self.up, ends), 2, dim=-1)
        made = products_of_runs(F.silu(gate) * other, self.down, ends) * weights.reshape(-1)[order].unsqueeze(-1)
        y = torch.sum(made[torch.sort(order)[1]].view(2048, 2, 128), dim=1)
        return F.mse_loss(tokens + y, target.reshape(-1, 128))


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


TOKENS = {"x": ((64, 32, 128), torch.float32), "target": ((64, 32, 128), torch.float32)}

# Factories, and the inputs by name: sizes and type.
NETWORKS = {
    "perceptron": (Perceptron, {"x": ((256, 256), torch.float32), "labels": ((256,), torch.int64)}),
    "separate": (lambda: Block(lambda: Attention(128, 4, 32, False)), TOKENS),
    "fused": (lambda: Block(lambda: FusedAttention(128, 8, 2, 32)), TOKENS),
    "module": (lambda: Block(lambda: ModuleAttention(128, 4)), TOKENS),
    "experts": (Experts, TOKENS),
    "classifier": (Classifier, {"x": ((64, 3, 16, 16), torch.float32), "labels": ((64,), torch.int64)}),
    "encoder": (Encoder, TOKENS),
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
