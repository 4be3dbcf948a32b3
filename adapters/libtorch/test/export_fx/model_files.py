# SPDX-License-Identifier: BSL-1.0
"""What holds for every model file. Needs no PyTorch."""

import gzip
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "adapters" / "libtorch"))


def read(path):
    path = Path(path)
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes(),
                      parse_constant=lambda name: (_ for _ in ()).throw(ValueError(f"{name} is not JSON")))


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
        sources = [node["target"] for node in nodes if node["op"] in ("parameter", "buffer", "placeholder")]
        self.assertEqual(len(sources), len(set(sources)))
        self.assertEqual(model["meta"]["n_nodes"], len(nodes))

    def operands(self, literal):
        if isinstance(literal, dict):
            return [literal["node"]] if "node" in literal else self.operands(list(literal.values()))
        return sum(map(self.operands, literal), []) if isinstance(literal, list) else []
