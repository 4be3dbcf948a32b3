#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Tests of export_fx.py and of the files made with it. Run with a Python that has PyTorch; without it they are skipped."""

import contextlib
import gzip
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "adapters" / "libtorch"))

try:
    import torch
except ImportError:
    torch = None
if torch:
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


def read(path):
    path = Path(path)
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes(),
                      parse_constant=lambda name: (_ for _ in ()).throw(ValueError(f"{name} is not JSON")))


def parameters(model):
    return [node for node in model["nodes"] if node["op"] == "parameter"]


def calls(model):
    return [node["target"] for node in model["nodes"] if node["op"].startswith("call_")]


class ModelCase(unittest.TestCase):
    def check(self, model):
        """What holds for every model file."""
        self.assertEqual((model["format"], model["version"]), ("heddle.model", 1))
        nodes = model["nodes"]
        for position, node in enumerate(nodes):
            self.assertEqual(node["id"], position)
            self.assertTrue(all(0 <= operand < position for operand in node["inputs"]), node)
            self.assertEqual(node["inputs"], self.operands([node["args"], list(node["kwargs"].values())]), node)
            self.assertEqual(node["op"] == "parameter", "requires_grad" in node)
            for operand in node["inputs"]:
                if nodes[operand]["out"]["kind"] == "tuple":
                    self.assertEqual(node["target"], "operator.getitem")
        self.assertEqual([node["op"] for node in nodes].count("output"), 1)
        self.assertEqual(nodes[-1]["op"], "output")
        self.assertEqual(nodes[-1]["out"], {"kind": "tensor", "shape": [], "dtype": "float32"})
        sources = [(node["op"], node["target"]) for node in nodes if node["op"] in ("parameter", "buffer", "placeholder")]
        self.assertEqual(len(sources), len(set(sources)))
        self.assertEqual(model["meta"]["n_nodes"], len(nodes))

    def operands(self, literal):
        if isinstance(literal, dict):
            return [literal["node"]] if "node" in literal else self.operands(list(literal.values()))
        return sum(map(self.operands, literal), []) if isinstance(literal, list) else []


@unittest.skipUnless(torch, "PyTorch is not installed")
class Export(ModelCase):
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

    def test_tied_parameter_is_one_node(self):
        model = self.export(Tied(), TIED_INPUTS)
        tied = [node for node in parameters(model) if node["out"]["shape"] == [11, 8]]
        self.assertEqual([node["target"] for node in tied], ["embedding.weight"])
        users = [node["target"] for node in model["nodes"] if tied[0]["id"] in node["inputs"]]
        self.assertEqual(users, ["torch.nn.functional.embedding", "torch.nn.functional.linear"])

    def test_attention_is_one_call_with_a_tuple_result(self):
        model = self.export(Tied(), TIED_INPUTS)
        node = next(n for n in model["nodes"] if n["target"] == "torch.nn.functional.multi_head_attention_forward")
        self.assertEqual([item["shape"] for item in node["out"]["items"]], [[5, 6, 8], [6, 5, 5]])
        self.assertEqual(node["kwargs"]["num_heads"], 2)
        indices = [n["args"][1] for n in model["nodes"] if n["target"] == "operator.getitem"]
        self.assertEqual(indices, [0, 1])

    def test_absent_item_of_a_tuple(self):
        def forward(self, x):
            h, weights = nn.MultiheadAttention.forward(attention, x, x, x, need_weights=False)
            self.weights = weights
            return h.sum()

        attention = nn.MultiheadAttention(4, 2)
        module = function_module(forward)
        module.attention = attention
        model = export_fx.export(module, {"x": torch.zeros(5, 6, 4)})
        node = next(n for n in model["nodes"] if n["out"]["kind"] == "tuple")
        self.assertEqual(node["out"]["items"][1], {"kind": "value", "value": None})
        self.assertIsNone(module.weights)

    def test_frozen_parameter(self):
        model = self.export(Scaled(), SCALED_INPUTS)
        self.assertEqual({node["target"]: node["requires_grad"] for node in parameters(model)}, {"linear.weight": True, "scale": False})

    def test_wrapped_function_brings_its_name_and_rule(self):
        model = self.export(Scaled(), SCALED_INPUTS)
        self.assertIn("my.scale", calls(model))
        self.assertEqual(model["rules"], {"my.scale": "(b d), (d) -> (b d); 0*1"})

    def test_python_values_are_folded(self):
        def forward(self, x):
            if x.dim() != 2 or x.shape[0] % 2 or not x.is_floating_point() or len(x) != x.size(0):
                raise AssertionError
            return x.reshape(x.shape[0] // 2, -1).sum() / x.numel()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["reshape", "sum", "operator.truediv"])
        self.assertEqual(model["nodes"][1]["args"], [{"node": 0}, 4, -1])

    def test_literals(self):
        def forward(self, x):
            x = x[..., 1:3].to(torch.float64)
            return x.masked_fill(x > 0, float("-inf")).to("cpu").float().sum()

        nodes = self.export_function(forward)["nodes"]
        self.assertEqual(nodes[1]["args"], [{"node": 0}, [{"ellipsis": True}, {"slice": [1, 3, None]}]])
        self.assertEqual(nodes[2]["args"], [{"node": 1}, "float64"])
        self.assertEqual(nodes[4]["args"], [{"node": 2}, {"node": 3}, {"float": "-inf"}])
        self.assertEqual(nodes[5]["target"], "float")

    def test_in_place_changes_become_values(self):
        def forward(self, x):
            y = x * 2
            other_name = y
            y += self.weight
            y.relu_().unsqueeze_(0)
            return other_name.sum()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["operator.mul", "operator.add", "relu", "unsqueeze", "sum"])
        self.assertEqual(model["nodes"][-2]["inputs"], [model["nodes"][-3]["id"]])
        self.assertEqual([node["out"]["shape"] for node in model["nodes"][-4:-2]], [[8, 4], [1, 8, 4]])

    def test_functions_that_work_in_place(self):
        def forward(self, x):
            y, z, h = x * 2, x * 3, x * 4
            torch.relu_(y)
            F.elu_(z, 0.5)
            F.hardtanh_(h, -2.0, 2.0)
            torch.sigmoid_(input=h)
            torch.zero_(z)
            return (y + z + h).sum()

        model = self.export_function(forward)
        functions = ["relu", "torch.nn.functional.elu", "torch.nn.functional.hardtanh", "sigmoid"]
        self.assertEqual(calls(model), ["operator.mul"] * 2 + functions[:1] + functions[2:] + ["operator.add"] * 2 + ["sum"])
        self.assertEqual(calls(self.export_function(lambda self, x: F.elu_(x * 2, 0.5).sum())), ["operator.mul", functions[1], "sum"])

    def test_another_name_for_what_was_changed(self):
        def forward(self, x):
            y = x * 2
            flat, all_of_it = y.view(-1), y[...]
            torch.sigmoid_(flat)
            all_of_it.add_(1)
            flat.relu_()
            return y.sum() + flat.sum()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["operator.mul", "view", "sigmoid", "reshape", "add", "reshape", "relu", "reshape", "sum", "sum", "operator.add"])
        whole, flat = (node["inputs"][0] for node in model["nodes"] if node["target"] == "sum")
        self.assertEqual([calls({"nodes": [model["nodes"][n]]}) for n in (whole, flat)], [["reshape"], ["relu"]])

    def test_names_that_are_not_followed(self):
        def transposed(self, x):
            y = x * 2
            view = y.t()
            y.add_(1)
            return view.sum()

        def detached(self, x):
            y = x * 2
            y.detach().mul_(0)
            return (y * y).sum()

        def data(self, x):
            y = x * 2
            y.data.mul_(2)
            return y.sum()

        for forward in (transposed, detached, data):
            with self.subTest(forward.__name__):
                self.assert_error("changed in place", forward)

    def test_traced_values_written_into_a_tensor_made_in_forward(self):
        def added(self, x):
            y = torch.zeros(8, 4).to(x.dtype)
            y += self.linear(x)
            return y.sum()

        self.assertEqual(calls(self.export_function(added)), ["torch.nn.functional.linear", "add", "sum"])

        def known_by_name(self, x):
            y = torch.zeros(8, 4)
            y.add_(x)
            return (x * y).sum()

        model = self.export_function(known_by_name)
        self.assertEqual(calls(model), ["add", "operator.mul", "sum"])
        self.assertEqual(model["nodes"][3]["inputs"], [0, 2])

        def lost(self, x):
            y = torch.zeros(8, 4)
            y.add_(x)
            return y.sum()

        def lost_view(self, x):
            y = torch.zeros(8, 4)
            row = y[0]
            y.add_(x)
            return (x + row).sum()

        for forward in (lost, lost_view):
            with self.subTest(forward.__name__):
                self.assert_error("a traced value was written", forward)

        def by_index(self, x):
            y = torch.zeros(8, 4)
            y[1:] = x[1:]
            return y.sum()

        self.assert_error("assignment to an index", by_index)

    def test_a_slice_changed_in_place(self):
        def forward(self, x):
            y = x * 2
            y[:, 1:3].relu_()
            y[6:].zero_()
            return y.sum()

        model = self.export_function(forward)
        names = ["operator.mul", *["operator.getitem", "relu"], *["operator.getitem"] * 2, "torch.cat", "operator.getitem", "torch.cat", "sum"]
        self.assertEqual(calls(model), names)
        relu, before, after, joined = model["nodes"][3:7]
        self.assertEqual(joined["inputs"], [before["id"], relu["id"], after["id"]])
        self.assertEqual([node["out"]["shape"] for node in (before, after, joined)], [[8, 1], [8, 1], [8, 4]])

        def twice(self, x):
            y = x * 2
            last, first = y[6:], y[:1]
            last.zero_()
            first.zero_()
            return y.sum()

        self.assert_error("changed in place", twice)

    def test_slices_are_taken_one_dimension_at_a_time(self):
        model = self.export_function(lambda self, x: x[2:, :4][..., 1:, 0::2].sum())
        self.assertEqual([n["args"][1] for n in model["nodes"] if n["target"] == "operator.getitem"],
                         [[{"slice": [2, None, None]}], [{"slice": [1, None, None]}], [{"slice": [None, None, None]}, {"slice": [0, None, 2]}]])

    def test_normalize_is_written_out(self):
        model = self.export_function(lambda self, x: F.normalize(x, dim=-1).sum())
        self.assertEqual(calls(model), ["norm", "clamp_min", "expand_as", "div", "sum"])

    def test_known_contents_are_constants(self):
        def forward(self, x):
            mask = x.new_zeros((4,))
            mask[1:3] = 1
            return (x + mask.unsqueeze(0)).sum()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["operator.add", "sum"])
        self.assertEqual([node["out"]["shape"] for node in model["nodes"] if node["op"] == "buffer"], [[1, 4]])

        def like_others(self, x):
            mask = torch.zeros_like(x)
            mask[:, 2:] = 1
            return (x * mask + torch.full_like(input=x, fill_value=2) + torch.ones_like(x, dtype=torch.int64)).sum()

        model = self.export_function(like_others)
        self.assertEqual(calls(model), ["operator.mul", "operator.add", "operator.add", "sum"])
        self.assertEqual([node["out"]["dtype"] for node in model["nodes"] if node["op"] == "buffer"], ["float32", "float32", "int64"])

    def test_repeated_elements_need_no_contents(self):
        model = self.export_function(lambda self, x: (x.repeat_interleave(2, 1).sum() + torch.repeat_interleave(x, 3).sum()))
        self.assertEqual([node["out"]["shape"] for node in model["nodes"] if "repeat_interleave" in node["target"]], [[8, 8], [96]])
        self.assert_error("depends on the contents", lambda self, x: x.repeat_interleave(torch.arange(8), 0).sum())

    def test_constants_are_buffers(self):
        model = self.export_function(lambda self, x: (x * torch.arange(4.0) + self.count).sum())
        self.assertEqual([node["target"] for node in model["nodes"] if node["op"] == "buffer"], ["constant_0", "count"])

    def test_element_types(self):
        model = export_fx.export(function_module(lambda self, x: (x.float() * self.weight).sum()), {"x": torch.zeros(4, dtype=torch.uint8)})
        self.assertEqual(model["nodes"][0]["out"]["dtype"], "int8")
        self.assert_error("elements of type int16, which a model file cannot hold", lambda self, x: (x.to(torch.int16) * self.weight).sum())

    def test_data_dependent_control_flow(self):
        def forward(self, x):
            h = self.linear(x)
            if h.sum() > 0:
                h = -h
            return h.sum()

        message = self.assert_error("data-dependent", forward)
        self.assertRegex(message, r"^forward, test_export_fx\.py:\d+: ")

    def test_errors_say_what_and_where(self):
        self.assert_error("module 'linear', test_export_fx.py:", lambda self, x: self.linear(x[:, :2]).sum())
        self.assert_error("shape [8, 4]; expected the scalar loss", lambda self, x: x)
        self.assert_error("returns a tuple", lambda self, x: (x.sum(), x))
        self.assert_error("data-dependent", lambda self, x: x[x > 0].sum())
        self.assert_error("data-dependent", lambda self, x: x.sum().item())
        self.assert_error("torch.where", lambda self, x: x.__setitem__(0, 1))
        self.assert_error("do not fit forward", lambda self, x: x.sum(), {"z": torch.zeros(2)})
        self.assert_error("input 'x' is a list", lambda self, x: x.sum(), {"x": []})
        self.assert_error("not registered", lambda self, x: nn.Linear(4, 1)(x).sum())

    def test_the_module_is_left_as_it_was(self):
        module = Tied()
        before = [(name, id(p), p.device) for name, p in module.named_parameters()]
        export_fx.export(module, TIED_INPUTS)
        self.assertEqual(before, [(name, id(p), p.device) for name, p in module.named_parameters()])
        self.assertIs(module.head.weight, module.embedding.weight)

    def test_meta_and_real_modules_export_alike(self):
        with export_fx.meta_device():
            module = Tied()
        self.assertEqual(module.head.weight.device.type, "meta")
        self.assertEqual(export_fx.export(module, TIED_INPUTS), export_fx.export(Tied(), TIED_INPUTS))

    def test_the_same_model_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("a.json.gz", "b.json.gz")]
            for path in paths:
                export_fx.write(export_fx.export(Tied(), TIED_INPUTS), path)
            self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())
            self.assertEqual(read(paths[0])["meta"]["model"], "Tied")
            self.assertEqual(sorted(Path(folder).iterdir()), paths)


@unittest.skipUnless(torch, "PyTorch is not installed")
class CommandLine(unittest.TestCase):
    def run_main(self, *arguments):
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                status = export_fx.main([str(a) for a in arguments])
            except SystemExit as stop:
                status = stop.code
        return status, output.getvalue(), errors.getvalue()

    def test_writes_a_model(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "my_model.py"
            script.write_text("import torch\ndef make(): return Sum(), {'x': torch.zeros(2, 3)}\n"
                              "class Sum(torch.nn.Module):\n    def forward(self, x): return x.sum()\n")
            out = Path(folder) / "m.json"
            status, output, errors = self.run_main(f"{script}:make", "--out", out, "--name", "sum")
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("3 nodes, 0 parameters", output)
            self.assertEqual(read(out)["meta"]["model"], "sum")

    def test_bad_input(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "m.json"
            for arguments, text in ((("no_such_model", "--out", out), "unknown model; expected"),
                                    (("no_such_module:f", "--out", out), "no_such_module: cannot be imported"),
                                    (("json:f", "--out", out), "has no function 'f'"),
                                    (("time:time", "--out", out), "expected (torch.nn.Module, dict of inputs)"),
                                    (("vit_2", "--out", Path(folder) / "none" / "m.json"), "No such file or directory")):
                status, output, errors = self.run_main(*arguments)
                self.assertEqual((status, output, errors.count("\n")), (1, "", 1), errors)
                self.assertIn(text, errors)
                self.assertTrue(errors.startswith("export_fx: "))
            self.assertEqual(list(Path(folder).iterdir()), [])
        self.assertEqual(self.run_main()[0], 2)
        self.assertEqual(self.run_main("vit_2")[0], 2)


class ShippedFiles(ModelCase):
    """These need no PyTorch, but for the last two."""

    def test_model_files(self):
        files = sorted((ROOT / "examples" / "models").glob("*.json.gz"))
        self.assertGreaterEqual(len(files), 7)
        for path in files:
            with self.subTest(path.name):
                model = read(path)
                self.check(model)
                self.assertLess(path.stat().st_size, 40_000)
                self.assertEqual(model["meta"]["model"], path.name.removesuffix(".json.gz"))

    def test_examples_in_the_format_reference(self):
        page = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
        examples = dict(re.findall(r"`(examples/formats/[\w.]+)`[^`]*\n```\w+\n(.*?)```\n", page, re.DOTALL))
        files = sorted((ROOT / "examples" / "formats").iterdir())
        for path in files:
            with self.subTest(path.name):
                self.assertIn(f"examples/formats/{path.name}", examples)
                self.assertEqual(examples[f"examples/formats/{path.name}"], path.read_text(encoding="utf-8"))
        for path in [*files, *(ROOT / "examples" / "clusters").iterdir()]:
            if path.suffix == ".json":
                self.assertRegex(read(path)["format"], r"^heddle\.\w+$")

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_example_model(self):
        expected = read(ROOT / "examples" / "formats" / "model.json")
        self.check(expected)
        if not torch.__version__.startswith("1.13"):
            self.skipTest("made with another release of PyTorch, which names fewer arguments")
        self.assertEqual(self.without_source(export_fx.export(Scaled(), SCALED_INPUTS, "scaled")), self.without_source(expected))

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_model_files_are_those_of_the_definitions(self):
        if not torch.__version__.startswith("1.13"):
            self.skipTest("made with another release of PyTorch")
        for name, factory in export_fx.shipped_models().items():
            with self.subTest(name):
                module, inputs = export_fx.build(factory, name, meta=True)
                model = export_fx.export(module, inputs, name)
                self.assertEqual(model["meta"]["n_params"], sum(p.numel() for p in module.parameters()))
                shipped = read(ROOT / "examples" / "models" / f"{name}.json.gz")
                self.assertEqual(self.without_source(json.loads(export_fx.encode(model))), self.without_source(shipped))

    def without_source(self, model):
        return {**model, "meta": {key: value for key, value in model["meta"].items() if key != "source"}}


@unittest.skipUnless(torch, "PyTorch is not installed")
class Definitions(unittest.TestCase):
    SMALL = dict(d=24, ff=48, heads=3)

    def setUp(self):
        torch.manual_seed(1)
        self.definitions = export_fx.load(str(ROOT / "examples" / "models" / "definitions.py"))

    def test_every_parameter_is_trained(self):
        texts = dict(batch=2, length=8, vocabulary=30, **self.SMALL)
        for module, inputs in (self.definitions.vit(1, batch=2, **self.SMALL),
                               self.definitions.vit(1, batch=2, pre_norm=False, activation=F.relu, **self.SMALL),
                               self.definitions.bert(1, **texts),
                               self.definitions.bert_moe(2, experts=4, **texts),
                               self.definitions.gpt2(1, **texts)):
            module(**inputs).backward()
            self.assertEqual([name for name, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0], [])

    def test_gating_keeps_to_the_capacity(self):
        x, weight = torch.randn(3, 40, 16), torch.randn(16, 8)
        dispatch, combine = self.definitions.top_2_gating(x, weight, capacity=10)
        self.assertEqual(dispatch.shape, (3, 40, 8, 10))
        self.assertLessEqual(dispatch.sum(1).max(), 1)  # one token in a slot
        self.assertLessEqual(dispatch.sum((2, 3)).max(), 2)
        self.assertTrue(torch.equal(dispatch > 0, combine > 0))
        roomy, weights = self.definitions.top_2_gating(x, weight, capacity=40)
        self.assertTrue((roomy.sum((2, 3)) == 2).all())
        torch.testing.assert_close(weights.sum((2, 3)), torch.ones(3, 40))
        rows = [self.definitions.top_2_gating(row[None], weight, capacity=10)[1] for row in x]
        torch.testing.assert_close(torch.cat(rows), combine)  # rows of the batch are independent


if __name__ == "__main__":
    unittest.main()
