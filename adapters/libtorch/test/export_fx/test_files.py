#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Exported files: from Python and from the command line."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from exports import TIED_INPUTS, ExportCase, Tied, export_fx
from model_files import read


class Files(ExportCase):
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


if __name__ == "__main__":
    unittest.main()
