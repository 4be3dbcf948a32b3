#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The files in examples/ that people are given. Needs no PyTorch."""

import re
import unittest

from model_files import ROOT, ModelCase, read


class ShippedFiles(ModelCase):
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


if __name__ == "__main__":
    unittest.main()
