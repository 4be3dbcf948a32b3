#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The definitions of examples/models, and that the files shipped are theirs."""

import json
import unittest

from exports import SCALED_INPUTS, F, Scaled, export_fx, torch
from model_files import ROOT, ModelCase, read


class ShippedFiles(ModelCase):
    def test_example_model(self):
        expected = read(ROOT / "examples" / "formats" / "model.json")
        self.check(expected)
        if not torch.__version__.startswith("1.13"):
            self.skipTest("made with another release of PyTorch, which names fewer arguments")
        self.assertEqual(self.without_source(export_fx.export(Scaled(), SCALED_INPUTS, "scaled")), self.without_source(expected))

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
