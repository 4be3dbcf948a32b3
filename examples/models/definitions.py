# SPDX-License-Identifier: BSL-1.0
"""The models shipped as examples/models/*.json.gz, as plain PyTorch modules.

Each function returns (module, inputs): forward(x, y) of the module is the training loss, summed over the batch, and inputs
holds x and y with the global batch. Regenerate the files with

    adapters/libtorch/export_fx.py --all
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


def sum_loss(scores, labels):
    """Cross-entropy summed over everything; the classes are the last dimension of scores."""
    logarithms = torch.log_softmax(scores, dim=-1)
    if labels.dim() > 1:
        logarithms = logarithms.transpose(1, 2)  # nll_loss wants (batch, class, position)
    return F.nll_loss(logarithms, labels, reduction="sum")


# ------------------------------------------------------------------------------------------------------------ VGG19


class VGG19(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, channels = [], 3
        for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, classes))

    def forward(self, x, y):
        x = torch.flatten(self.pool(self.features(x)), 1)
        return sum_loss(self.classifier(x), y)


# ----------------------------------------------------------------------------------------------------- Transformers


class FeedForward(nn.Module):
    def __init__(self, d, ff, activation, dropout):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d, ff), nn.Linear(ff, d)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


@torch.fx.wrap
def top_2_gating(gate_input, gate_weight, *, capacity):
    """Send each token to its two best experts; an expert takes at most `capacity` tokens of each batch row.

    gate_input (b, s, d), gate_weight (d, e) -> dispatch (0 or 1) and combine (weights), both (b, s, e, c)."""
    scores = torch.softmax(gate_input @ gate_weight, dim=-1)
    weights, chosen = scores.topk(2, dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    experts = torch.arange(scores.shape[-1], device=scores.device)
    slots = torch.arange(capacity, device=scores.device)
    combine = torch.zeros(*scores.shape, capacity, dtype=scores.dtype, device=scores.device)
    taken = 0  # slots of each expert taken by first choices, which go before second choices
    for choice in range(2):
        goes = (chosen[..., choice, None] == experts).long()  # (b, s, e)
        place = taken + goes.cumsum(dim=1) - 1
        taken = taken + goes.sum(dim=1, keepdim=True)
        sits = (place[..., None] == slots) & (goes[..., None] == 1)  # (b, s, e, c)
        combine = combine + weights[..., choice, None, None] * sits
    return (combine > 0).to(combine.dtype), combine


top_2_gating.heddle_target = "heddle.top_2_gating"


class MixtureOfExperts(nn.Module):
    def __init__(self, d, ff, activation, experts, capacity):
        super().__init__()
        self.gate_weight = nn.Parameter(0.02 * torch.randn(d, experts))
        self.weight1 = nn.Parameter(0.02 * torch.randn(experts, d, ff))
        self.weight2 = nn.Parameter(0.02 * torch.randn(experts, ff, d))
        self.activation, self.capacity = activation, capacity

    def forward(self, x):
        dispatch, combine = top_2_gating(x, self.gate_weight, capacity=self.capacity)
        tokens = torch.einsum("bsd,bsec->becd", x, dispatch)
        hidden = self.activation(torch.einsum("becd,edh->bech", tokens, self.weight1))
        tokens = torch.einsum("bech,ehd->becd", hidden, self.weight2)
        return torch.einsum("becd,bsec->bsd", tokens, combine)


class Block(nn.Module):
    """Attention and feed-forward, each with a residual connection and a layer norm before or after."""

    def __init__(self, d, heads, feed_forward, dropout, pre_norm):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, dropout=dropout, batch_first=True)
        self.feed_forward = feed_forward
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = pre_norm

    def attend(self, x, mask):
        return self.dropout(self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])

    def forward(self, x, mask=None):
        if self.pre_norm:
            x = x + self.attend(self.norm1(x), mask)
            return x + self.dropout(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class VisionTransformer(nn.Module):
    def __init__(self, layers, d, ff, heads, activation, dropout, pre_norm, size, patch, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, d))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Block(d, heads, FeedForward(d, ff, activation, dropout), dropout, pre_norm) for _ in range(layers))
        self.norm = nn.LayerNorm(d) if pre_norm else None
        self.head = nn.Linear(d, classes)

    def forward(self, x, y):
        x = torch.flatten(self.patches(x), 2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(x + self.positions)
        for layer in self.layers:
            x = layer(x)
        if self.norm is not None:
            x = self.norm(x)
        return sum_loss(self.head(x[:, 0]), y)


class TextTransformer(nn.Module):
    """An encoder (BERT: post-norm, own output weight) or a decoder (GPT-2: pre-norm, causal, tied output weight).

    With experts, every second feed-forward is a mixture of them."""

    def __init__(self, layers, d, ff, heads, activation, dropout, pre_norm, length, vocabulary, causal, tied, experts=0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.positions = nn.Parameter(0.02 * torch.randn(1, length, d))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1) if causal else None)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList()
        for i in range(layers):
            if experts and i % 2 == 1:
                capacity = -(-2 * length * 5 // (4 * experts))  # two choices per token and a quarter to spare
                feed_forward = MixtureOfExperts(d, ff, activation, experts, capacity)
            else:
                feed_forward = FeedForward(d, ff, activation, dropout)
            self.layers.append(Block(d, heads, feed_forward, dropout, pre_norm))
        self.norm = nn.LayerNorm(d)  # pre-norm: after the last layer; post-norm: of the embedding
        self.pre_norm = pre_norm
        self.head = nn.Linear(d, vocabulary, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x, y):
        x = self.tokens(x) + self.positions
        x = self.dropout(x if self.pre_norm else self.norm(x))
        for layer in self.layers:
            x = layer(x, self.mask)
        return sum_loss(self.head(self.norm(x) if self.pre_norm else x), y)


# -------------------------------------------------------------------------------------------------------- The models

BASE = dict(d=768, ff=3072, heads=12, dropout=0.1)


def images(module, batch, classes, size=32):
    return module, {"x": torch.rand(batch, 3, size, size), "y": torch.randint(classes, (batch,))}


def texts(module, batch, length, vocabulary):
    return module, {"x": torch.randint(vocabulary, (batch, length)), "y": torch.randint(vocabulary, (batch, length))}


def vgg19(batch=512, classes=10):
    return images(VGG19(classes), batch, classes)


def vit(layers, batch=512, classes=10, activation=F.gelu, pre_norm=True, patch=4, **sizes):
    sizes = {**BASE, **sizes}
    module = VisionTransformer(layers, activation=activation, pre_norm=pre_norm, size=32, patch=patch, classes=classes, **sizes)
    return images(module, batch, classes)


def bert(layers=12, batch=512, length=128, vocabulary=33280, activation=F.gelu, experts=0, **sizes):
    sizes = {**BASE, **sizes}
    module = TextTransformer(layers, activation=activation, pre_norm=False, length=length, vocabulary=vocabulary, causal=False,
                             tied=False, experts=experts, **sizes)
    return texts(module, batch, length, vocabulary)


def bert_moe(layers=12, batch=256, experts=16, **sizes):
    return bert(layers, batch, experts=experts, **sizes)


def gpt2(layers=12, batch=128, length=256, vocabulary=50257, **sizes):
    sizes = {**BASE, **sizes}
    module = TextTransformer(layers, activation=partial(F.gelu, approximate="tanh"), pre_norm=True, length=length,
                             vocabulary=vocabulary, causal=True, tied=True, **sizes)
    return texts(module, batch, length, vocabulary)


MODELS = {
    "vgg19": vgg19,
    "vit_2": partial(vit, 2),
    "vit_12": partial(vit, 12),
    "bert_12": partial(bert, 12),
    "bert_moe_2": partial(bert_moe, 2),
    "bert_moe_12": partial(bert_moe, 12),
    "gpt2_12": partial(gpt2, 12),
}
