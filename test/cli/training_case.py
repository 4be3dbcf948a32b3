"""What tests of training share: models from Debian's PyTorch, their plans, and running `heddle train` in threads or under mpirun.

Arguments of a test: HEDDLE [MPIRUN...].
"""
import json
import struct
import subprocess
import sys

MPIRUN = sys.argv[2:]
del sys.argv[2:]

try:
    import torch
    from torch import nn
except ImportError:
    print("skipped: there is no PyTorch to make models with")
    sys.exit(77)

sys.path[:0] = ["adapters/libtorch", "examples/models"]
import definitions  # noqa: E402
import export_fx  # noqa: E402
from command_line import HEDDLE, CommandLine, run  # noqa: E402

SIZES = dict(layers=2, batch=8, length=6, vocabulary=50, d=16, ff=32, heads=4, dropout=0.1)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x, y):
        return definitions.sum_loss(self.head(torch.flatten(self.features(x), 1)), y)


class Decoder(nn.Module):
    """Labels are the tokens one place later, of which those that are 0 do not count: how many do, all tokens tell."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.inner = nn.Linear(12, 12)
        self.head = nn.Linear(12, 20)

    def forward(self, tokens):
        scores = self.head(torch.tanh(self.inner(self.embedding(tokens))))
        labels = nn.functional.pad(tokens, (0, 1))[:, 1:]
        labels = labels.masked_fill(labels == 0, -100)
        return nn.functional.cross_entropy(scores.view(-1, 20), labels.reshape(-1))


MODELS = {
    "gpt": lambda: definitions.gpt2(**SIZES),
    "experts": lambda: definitions.bert_moe(experts=4, **SIZES),
    "convolutions": lambda: (Convolutions(), {"x": torch.rand(16, 3, 8, 8), "y": torch.randint(10, (16,))}),
    "decoder": lambda: (Decoder(), {"tokens": torch.randint(20, (8, 5))}),
}
# Fast links, so that small models are worth dividing, and devices three times as fast as others.
CLUSTER = {
    "format": "heddle.cluster", "version": 1, "name": "small",
    "device_types": [{"name": "fast", "memory": 1e9, "bandwidth": 1e10, "rates": {"float32": 3e9}},
                     {"name": "slow", "memory": 1e9, "bandwidth": 1e10, "rates": {"float32": 1e9}}],
    "machines": [{"type": "fast", "count": 2}, {"type": "slow", "count": 2}],
    "links": {"intra": {"bandwidth": 1e12, "latency": 1e-9}, "inter": {"bandwidth": 1e12, "latency": 1e-9}},
}
# Slow devices on a slow network, across which stages send less than devices that compute together.
SLOW_NETWORK = {
    **CLUSTER, "name": "slow network",
    "device_types": [{"name": "fast", "memory": 1e9, "bandwidth": 1e10, "rates": {"float32": 3e8}},
                     {"name": "slow", "memory": 1e9, "bandwidth": 1e10, "rates": {"float32": 2.5e8}}],
    "machines": [{"type": "fast", "devices": 2}, {"type": "slow", "devices": 2}],
    "links": {"intra": {"bandwidth": 1e12, "latency": 1e-9}, "inter": {"bandwidth": 2e7, "latency": 1e-7}},
}
# Devices so slow that stages wait for each other's work more than for what they send.
SLOW_DEVICES = {**SLOW_NETWORK, "device_types": [{**t, "rates": {"float32": t["rates"]["float32"] / 10}} for t in SLOW_NETWORK["device_types"]]}
# Links inside machines so slow that their devices communicate as long as they compute.
SLOW_LINKS = {**SLOW_NETWORK, "name": "slow links",
              "device_types": [{**t, "rates": {"float32": rate}} for t, rate in zip(SLOW_NETWORK["device_types"], (1e8, 8e7))],
              "links": {**SLOW_NETWORK["links"], "intra": {"bandwidth": 3e6, "latency": 1e-7}}}


TYPES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.int32: "I32", torch.int64: "I64", torch.bool: "BOOL"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        t = t.detach().contiguous()
        raw = bytes(t.view(torch.int16).numpy()) if t.dtype == torch.bfloat16 else bytes(t.numpy())
        header[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class TrainingCase(CommandLine):
    def setUp(self):
        super().setUp()
        self.cluster = self.write("cluster.json", CLUSTER)

    def model(self, name):
        path = self.path / f"{name}.json.gz"
        if not path.exists():
            module, inputs = definitions.gpt2(**{**SIZES, "layers": 4}) if name == "deep" else MODELS[name]()
            export_fx.write(export_fx.export(module, inputs, name), str(path))
        return path

    def plan(self, name, *options, out="plan.json", cluster=None):
        out = self.path / out
        planned = run("plan", *(() if "--planner" in options else ("--planner", "hap")), "--model", self.model(name), "--cluster", cluster or self.cluster, "--out", out, *options)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        return out, json.loads(out.read_text())

    def stages(self, count=2, cluster=SLOW_NETWORK):
        """A plan of stages, as `heddle plan` makes it where no planner is named."""
        plan, content = self.plan("gpt", "--planner", "joint", out="stages.json", cluster=self.write("slow_network.json", cluster))
        self.assertEqual(len(content["pipeline"]), count)
        if count > 1:
            self.assertGreater(content["micro_batches"], 1)
        return plan, content

    def rounds(self):
        """A plan of a deeper model whose stages pass two machines in rounds."""
        options = ("--planner", "joint", "--sends-beside")
        plan, content = self.plan("deep", *options, out="rounds.json", cluster=self.write("slow_devices.json", SLOW_DEVICES))
        devices = [tuple(stage["devices"]) for stage in content["pipeline"]]
        self.assertGreater(len(devices), len(set(devices)))
        return plan, content

    def turns(self):
        """A plan of stages in which two parts of each micro-batch take turns."""
        plan, content = self.plan("gpt", "--planner", "joint", out="turns.json", cluster=self.write("slow_links.json", SLOW_LINKS))
        self.assertGreater(len(content["pipeline"]), 1)
        self.assertIn(2, [stage["plan"].get("schedule", {}).get("micro_batches") for stage in content["pipeline"]])
        return plan, content

    def train(self, plan, name, *options, ranks=None, steps=50):
        arguments = ["train", "--plan", plan, "--model", self.model(name), "--steps", steps, "--json", *options]
        if not ranks:
            return run(*arguments)
        return subprocess.run([*MPIRUN, "-n", str(ranks), HEDDLE, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    def equals_single_device(self, result, most=1e-9):
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads(result.stdout)
        self.assertLessEqual(told["max_relative_difference"], most)
        self.assertNotAlmostEqual(told["losses"][0], told["losses"][-1])
        return told["losses"]
