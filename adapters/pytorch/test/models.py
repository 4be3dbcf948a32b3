# SPDX-License-Identifier: BSL-1.0
"""Models that plans are applied to: heads and hidden units are counted by the tensors, so code runs on parts of them too."""
import torch
import torch.nn.functional as F
from torch import nn


def loss_of(scores, labels):
    """The mean over samples, a sum where there are none."""
    return F.cross_entropy(scores, labels, reduction="mean" if len(labels) else "sum")


class Attention(nn.Module):
    def __init__(self, width, head):
        super().__init__()
        self.head = head
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        query, key, value = (of(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for of in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(2, 3) * self.head ** -0.5, -1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, head, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, head)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words=32, width=32, head=4, hidden=64, blocks=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, head, hidden) for _ in range(blocks))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x, y):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return loss_of(self.scores(self.norm(x)).flatten(0, 1), y.flatten())


class Perceptron(nn.Module):
    def __init__(self, width=24, hidden=48, classes=8):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x, y):
        return loss_of(self.last(F.relu(self.second(F.relu(self.first(x))))), y)


def transformer():
    words = torch.randint(32, (2, 16, 8))
    return Transformer(), {"x": words[0], "y": words[1]}


def perceptron():
    return Perceptron(), {"x": torch.rand(16, 24), "y": torch.randint(8, (16,))}
