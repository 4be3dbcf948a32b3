# SPDX-License-Identifier: BSL-1.0
"""Models of today as their libraries make them: real widths, few layers. Each function returns (module, inputs) as export_pt2.py wants them."""

import math

import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

# --------------------------------------------------------------------------------------------------- from transformers


class Told(nn.Module):
    """A module that returns its loss where it is given labels, with arguments that are the same for every batch."""

    def __init__(self, model, **always):
        super().__init__()
        self.model, self.always = model, always

    def forward(self, **batch):
        return self.model(**batch, **self.always).loss


def tokens(batch, length):
    return torch.zeros(batch, length, dtype=torch.long)


def decoder(name, batch, length, layers=2, **sizes):
    """A causal language model of transformers: its defaults, but for `sizes`."""
    config = getattr(transformers, f"{name}Config")(num_hidden_layers=layers, use_cache=False, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa" if sdpa_of(config) else "eager")
    ids = tokens(batch, length)
    return Told(model, use_cache=False), {"input_ids": ids, "labels": ids}


def sdpa_of(config):
    return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._supports_sdpa


def masked(name, batch, length, **sizes):
    config = getattr(transformers, f"{name}Config")(**{"num_hidden_layers": 2, **sizes})
    ids = tokens(batch, length)
    return Told(transformers.AutoModelForMaskedLM.from_config(config)), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def sequences(model, batch, source, target):
    return Told(model, use_cache=False), {"input_ids": tokens(batch, source), "labels": tokens(batch, target)}


def images(model, batch, size=224):
    return Told(model), {"pixel_values": torch.zeros(batch, 3, size, size), "labels": torch.zeros(batch, dtype=torch.long)}


def gpt2():
    return decoder("GPT2", 64, 1024)


def llama3_8b(layers=2):
    return decoder("Llama", 16, 2048, layers, vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                   num_key_value_heads=8, max_position_embeddings=8192, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})


def mistral_7b():
    return decoder("Mistral", 16, 2048)


def qwen2_7b():
    return decoder("Qwen2", 16, 2048, vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4)


def qwen3_8b():
    return decoder("Qwen3", 16, 2048, hidden_size=4096, intermediate_size=12288, num_attention_heads=32, num_key_value_heads=8)


def gemma2_9b():
    return decoder("Gemma2", 16, 2048, hidden_size=3584, intermediate_size=14336, num_attention_heads=16, num_key_value_heads=8)


def phi3_mini():
    return decoder("Phi3", 16, 2048, pad_token_id=0)


def falcon_7b():
    """Multi-query: one key and one value head beside 71."""
    return decoder("Falcon", 16, 2048, hidden_size=4544, num_attention_heads=71)


def falcon_40b():
    """Eight key and value heads in the projection of 128."""
    return decoder("Falcon", 16, 2048, hidden_size=8192, num_attention_heads=128, num_kv_heads=8, new_decoder_architecture=True)


def gpt_neox_20b():
    return decoder("GPTNeoX", 16, 2048)


def gptj_6b():
    return decoder("GPTJ", 16, 2048)


def opt_7b():
    return decoder("OPT", 16, 2048, hidden_size=4096, ffn_dim=16384, num_attention_heads=32, word_embed_proj_dim=4096)


def bloom_7b():
    return decoder("Bloom", 16, 2048, hidden_size=4096, n_head=32)


def phi2():
    return decoder("Phi", 16, 2048, hidden_size=2560, intermediate_size=10240, num_attention_heads=32)


def mamba2_3b():
    return decoder("Mamba2", 16, 1024, hidden_size=2560, num_heads=80)


def mixtral_8x7b(layers=2):
    return decoder("Mixtral", 16, 2048, layers)


def qwen2_moe():
    return decoder("Qwen2Moe", 16, 2048)


def qwen3_moe():
    return decoder("Qwen3Moe", 16, 2048)


def deepseek_v3():
    return decoder("DeepseekV3", 16, 1024, first_k_dense_replace=1)


def gpt_oss_20b():
    return decoder("GptOss", 16, 2048, num_local_experts=32)


def bert_base():
    return masked("Bert", 128, 512)


def roberta_base():
    return masked("Roberta", 128, 512, vocab_size=50265, max_position_embeddings=514)


def deberta_v3():
    return masked("DebertaV2", 64, 512, vocab_size=128100, hidden_size=768, intermediate_size=3072, num_attention_heads=12, relative_attention=True,
                  position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], max_relative_positions=-1)


def albert_base():
    return masked("Albert", 128, 512, hidden_size=768, intermediate_size=3072, num_attention_heads=12)


def modernbert():
    return masked("ModernBert", 128, 512)


def t5_base():
    config = transformers.T5Config(d_model=768, d_ff=3072, num_heads=12, num_layers=2, decoder_start_token_id=0)
    return sequences(transformers.T5ForConditionalGeneration(config), 64, 512, 128)


def bart_large():
    config = transformers.BartConfig(encoder_layers=2, decoder_layers=2)
    return sequences(transformers.BartForConditionalGeneration(config), 64, 512, 128)


def whisper_small():
    config = transformers.WhisperConfig(d_model=768, encoder_layers=2, decoder_layers=2, encoder_attention_heads=12, decoder_attention_heads=12,
                                        encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    model = transformers.WhisperForConditionalGeneration(config)
    return Told(model, use_cache=False), {"input_features": torch.zeros(32, 80, 3000), "labels": tokens(32, 256)}


def wav2vec2():
    config = transformers.Wav2Vec2Config(num_hidden_layers=2, mask_time_prob=0.0, mask_feature_prob=0.0, layerdrop=0.0, num_labels=12)
    model = transformers.Wav2Vec2ForSequenceClassification(config)
    return Told(model), {"input_values": torch.zeros(32, 48000), "labels": torch.zeros(32, dtype=torch.long)}


def vit_base():
    return images(transformers.ViTForImageClassification(transformers.ViTConfig(num_hidden_layers=2, num_labels=1000)), 256)


def swin_tiny():
    return images(transformers.SwinForImageClassification(transformers.SwinConfig(num_labels=1000, depths=[2, 2, 2, 2])), 64)


def dinov2_base():
    return images(transformers.Dinov2ForImageClassification(transformers.Dinov2Config(num_hidden_layers=2, num_labels=1000)), 128)


def segformer():
    config = transformers.SegformerConfig(num_labels=150)
    batch = {"pixel_values": torch.zeros(32, 3, 512, 512), "labels": torch.zeros(32, 512, 512, dtype=torch.long)}
    return Told(transformers.SegformerForSemanticSegmentation(config)), batch


def clip_base():
    config = transformers.CLIPConfig(text_config={"num_hidden_layers": 2}, vision_config={"num_hidden_layers": 2})
    model = transformers.CLIPModel(config)
    return Told(model, return_loss=True), {"input_ids": tokens(256, 77), "pixel_values": torch.zeros(256, 3, 224, 224)}


# ------------------------------------------------------------------------------------------------------- other libraries


class Classified(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return F.cross_entropy(self.model(x), y)


def classifier(model, batch, size=224):
    return Classified(model), {"x": torch.zeros(batch, 3, size, size), "y": torch.zeros(batch, dtype=torch.long)}


def resnet50():
    return classifier(torchvision.models.resnet50(), 64)


def densenet121():
    return classifier(torchvision.models.densenet121(), 64)


def convnext_tiny():
    return classifier(timm.create_model("convnext_tiny"), 64)


def efficientnet_b0():
    return classifier(timm.create_model("efficientnet_b0"), 128)


def maxvit_tiny():
    return classifier(timm.create_model("maxvit_tiny_tf_224"), 64)


def mixer_b16():
    return classifier(timm.create_model("mixer_b16_224", num_classes=1000), 128)


def beit_base():
    return classifier(timm.create_model("beit_base_patch16_224", depth=2), 128)


# --------------------------------------------------------------------------------------------------------- written here


class Residual(nn.Module):
    """Two convolutions with group norms, and a time's embedding between them."""

    def __init__(self, inner, outer, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.norm2, self.conv2 = nn.GroupNorm(32, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class SpatialAttention(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = nn.GroupNorm(32, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1), heads

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(b, c, h, w))


def time_embedding(t, width):
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(width // 2, device=t.device) / (width // 2))
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class UNet(nn.Module):
    """The network of denoising diffusion: widths 128 to 512, attention at the two smaller sizes."""

    def __init__(self, widths=(128, 256, 512), time=512):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up, width, kept = nn.ModuleList(), nn.ModuleList(), widths[0], [widths[0]]
        for level, wide in enumerate(widths):
            attention = SpatialAttention(wide) if level > 0 else nn.Identity()
            shrink = nn.Conv2d(wide, wide, 3, stride=2, padding=1) if level + 1 < len(widths) else nn.Identity()
            self.down.append(nn.ModuleList([Residual(width, wide, time), attention, shrink]))
            width = wide
            kept.append(wide)
        self.middle1, self.middle2, self.middle3 = Residual(width, width, time), SpatialAttention(width), Residual(width, width, time)
        for level, wide in reversed(list(enumerate(widths))):
            attention = SpatialAttention(wide) if level > 0 else nn.Identity()
            self.up.append(nn.ModuleList([Residual(width + kept.pop(), wide, time), attention]))
            width = wide
        self.norm, self.last = nn.GroupNorm(32, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t, noise):
        e, h, kept = self.time(time_embedding(t, self.first.out_channels)), self.first(x), []
        for block, attention, shrink in self.down:
            h = attention(block(h, e))
            kept.append(h)
            h = shrink(h)
        h = self.middle3(self.middle2(self.middle1(h, e)), e)
        for block, attention in self.up:
            other = kept.pop()
            if h.shape[-1] != other.shape[-1]:
                h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            h = attention(block(torch.cat([h, other], dim=1), e))
        return F.mse_loss(self.last(F.silu(self.norm(h))), noise)


def unet():
    image = torch.zeros(64, 3, 64, 64)
    return UNet(), {"x": image, "t": torch.zeros(64, dtype=torch.long), "noise": image}


class DiffusionBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6), nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.up, self.down, self.modulation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, 6 * width)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(c))[:, None].chunk(6, dim=-1)
        b, s, d = x.shape
        y = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).reshape(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + gate1 * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, d))
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class DiffusionTransformer(nn.Module):
    """DiT-XL/2 on latents of 4 x 32 x 32, with fewer blocks."""

    def __init__(self, width=1152, heads=16, blocks=2, patch=2, channels=4, size=32, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(DiffusionBlock(width, heads) for _ in range(blocks))
        self.norm, self.modulation = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6), nn.Linear(width, 2 * width)
        self.last, self.patch = nn.Linear(width, patch * patch * channels), patch

    def forward(self, x, t, y, noise):
        b, channels, height, width = x.shape
        h = self.patches(x).flatten(2).transpose(1, 2) + self.position
        c = self.time(time_embedding(t, 256)) + self.label(y)
        for block in self.blocks:
            h = block(h, c)
        shift, scale = self.modulation(F.silu(c))[:, None].chunk(2, dim=-1)
        h = self.last(self.norm(h) * (1 + scale) + shift)
        p = self.patch
        h = h.reshape(b, height // p, width // p, p, p, channels)
        return F.mse_loss(torch.einsum("nhwpqc->nchpwq", h).reshape(b, channels, height, width), noise)


def dit_xl():
    latent, number = torch.zeros(128, 4, 32, 32), torch.zeros(128, dtype=torch.long)
    return DiffusionTransformer(), {"x": latent, "t": number, "y": number, "noise": latent}


class Recommender(nn.Module):
    """DLRM: sums of embeddings from tables of a million rows, and all products of two of them."""

    def __init__(self, tables, rows=1000000, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
        self.register_buffer("pairs", torch.tensor([[i, j] for i in range(tables + 1) for j in range(i)]).T.contiguous(), persistent=False)

    def forward(self, dense, sparse, label):
        x = self.bottom(dense)
        features = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, products], dim=1)).squeeze(1), label)


def dlrm(tables):
    batch = {"dense": torch.zeros(8192, 13), "sparse": torch.zeros(8192, tables, 4, dtype=torch.long), "label": torch.zeros(8192)}
    return Recommender(tables), batch


def dlrm_8():
    return dlrm(8)


def dlrm_24():
    return dlrm(24)


class NanoBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.RMSNorm(width), nn.RMSNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def turn(self, x, turns):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)

    def forward(self, x, turns):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1) for t in self.qkv(self.norm1(x)).split(d, dim=2))
        q, k = self.turn(q, turns), self.turn(k, turns)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())


class NanoGPT(nn.Module):
    """A small GPT as it is written for oneself: one projection for q, k and v, rotary positions by complex numbers, tied embeddings."""

    def __init__(self, vocabulary=50304, width=768, heads=12, blocks=2, length=1024):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(NanoBlock(width, heads) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        angles = torch.outer(torch.arange(length), 1.0 / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.turns[: ids.shape[1]])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-1)


def nanogpt_complex():
    ids = tokens(64, 1024)
    return NanoGPT(), {"ids": ids, "labels": ids}


class Recurrent(nn.Module):
    def __init__(self, kind, vocabulary=33278, width=1024):
        super().__init__()
        self.embedding, self.layers, self.head = nn.Embedding(vocabulary, width), kind(width, width, 2, batch_first=True), nn.Linear(width, vocabulary)

    def forward(self, ids, labels):
        logits = self.head(self.layers(self.embedding(ids))[0])
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def recurrent(kind):
    ids = tokens(64, 64)
    return Recurrent(kind), {"ids": ids, "labels": ids}


def lstm():
    return recurrent(nn.LSTM)


def gru():
    return recurrent(nn.GRU)


class CellByCell(nn.Module):
    """A recurrence that is unrolled by hand."""

    def __init__(self, vocabulary=33278, width=1024):
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(vocabulary, width), nn.LSTMCell(width, width), nn.Linear(width, vocabulary)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        h = c = x.new_zeros(x.shape[0], x.shape[2])
        states = []
        for t in range(ids.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        return F.cross_entropy(self.head(torch.stack(states, dim=1)).flatten(0, 1), labels.flatten())


def lstm_cells():
    ids = tokens(64, 16)
    return CellByCell(), {"ids": ids, "labels": ids}


def torch_transformer():
    """torch.nn.Transformer's own layers."""
    class Translator(nn.Module):
        def __init__(self, vocabulary=32000, width=1024):
            super().__init__()
            self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
            self.layers = nn.Transformer(width, 16, 2, 2, 4096, batch_first=True)

        def forward(self, source, target, labels):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
            h = self.layers(self.embedding(source), self.embedding(target), tgt_mask=mask, tgt_is_causal=True)
            return F.cross_entropy(self.head(h).flatten(0, 1), labels.flatten())
    return Translator(), {"source": tokens(64, 256), "target": tokens(64, 256), "labels": tokens(64, 256)}
