#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""What the exporter makes of a module: nodes, arguments, sources."""

import unittest

from exports import SCALED_INPUTS, TIED_INPUTS, ExportCase, F, Scaled, Tied, calls, export_fx, function_module, nn, parameters, torch


class Graphs(ExportCase):
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

    def test_a_tuple_is_handed_on(self):
        module = function_module(lambda self, x: self.cell(x, self.cell(x, self.cell(x)))[0].sum())
        module.cell = nn.LSTMCell(4, 5)
        model = export_fx.export(module, {"x": torch.zeros(8, 4)})
        self.check(model)
        cells = [node for node in model["nodes"] if node["target"].endswith("lstm_cell")]
        self.assertEqual(len(cells), 3)
        for before, after in zip(cells, cells[1:]):
            items = [node["id"] for node in model["nodes"] if before["id"] in node["inputs"]]
            self.assertEqual(after["inputs"][1:3], items)

    def test_items_by_name(self):
        model = self.export_function(lambda self, x: x.max(1).values.sum() + x.max(1)[-2].sum())
        self.assertEqual([n["args"][1] for n in model["nodes"] if n["target"] == "operator.getitem"], [0, 0])

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

    def test_batch_norms_of_all_devices_are_batch_norms(self):
        module = function_module(lambda self, x: self.norm(x).sum())
        module.norm = nn.SyncBatchNorm(4)
        self.assertIn("torch.nn.functional.batch_norm", calls(export_fx.export(module, {"x": torch.zeros(8, 4, 3)})))

    def test_normalised_weights_are_written_out(self):
        for dim in (0, 1, None):
            module = function_module(lambda self, x: self.linear(x).sum())
            module.linear = nn.utils.weight_norm(nn.Linear(4, 5), dim=dim)
            model = export_fx.export(module, {"x": torch.zeros(8, 4)})
            self.check(model)
            self.assertEqual([node["target"] for node in parameters(model)], ["linear.weight_g", "linear.weight_v", "linear.bias"])

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

    def test_slices_are_taken_one_dimension_at_a_time(self):
        model = self.export_function(lambda self, x: x[2:, :4][..., 1:, 0::2].sum())
        self.assertEqual([n["args"][1] for n in model["nodes"] if n["target"] == "operator.getitem"],
                         [[{"slice": [2, None, None]}], [{"slice": [1, None, None]}], [{"slice": [None, None, None]}, {"slice": [0, None, 2]}]])

    def test_as_many_places_as_there_are_are_not_the_whole(self):
        model = self.export_function(lambda self, x: x[torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])].sum() + x[[1, 0, 3, 2, 5, 4, 7, 7], 1:].sum())
        self.assertEqual(calls(model), ["operator.getitem", "sum", "operator.getitem", "sum", "operator.add"])
        places = [node for node in model["nodes"] if node["op"] == "buffer"]
        self.assertEqual([(node["target"], node["out"]) for node in places],
                         [(f"constant_{k}", {"kind": "tensor", "shape": [8], "dtype": "int64"}) for k in range(2)])
        self.assertEqual(self.export_function(lambda self, x: x[0:8, :].sum())["nodes"][1]["target"], "sum")

    def test_sources_have_names_of_their_own(self):
        class Clash(nn.Module):
            def __init__(self):
                super().__init__()
                self.x, self.constant_0 = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

            def forward(self, x):
                return (x * self.x * self.constant_0 * torch.arange(4.0)).sum()

        model = self.export(Clash(), {"x": torch.zeros(8, 4)})
        self.assertEqual([n["target"] for n in model["nodes"] if n["op"] in ("placeholder", "parameter", "buffer")], ["x", "x_1", "constant_0", "constant_0_1"])

    def test_losses_of_each_label_are_without_the_classes(self):
        class Loss(nn.Module):
            def forward(self, scores, target):
                self.shape = F.cross_entropy(scores, target, reduction="none").shape
                return scores.sum()

        for scores, labels in (((8, 4), (8,)), ((8, 4, 3), (8, 3)), ((4,), ())):
            for target in (torch.zeros(scores), torch.zeros(labels, dtype=torch.int64)):
                module = Loss()
                export_fx.export(module, {"scores": torch.zeros(scores), "target": target})
                self.assertEqual(module.shape, labels)

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


if __name__ == "__main__":
    unittest.main()
