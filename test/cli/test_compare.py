"""Plans beside each other, on other clusters, and for other frameworks: heddle diff, heddle cost --set, heddle export.

Usage: test_compare.py HEDDLE, from the repository root.
"""
import json
import pathlib
import re
import unittest

from command_line import CLUSTER, CommandLine, MODEL, run

MIXED = "examples/clusters/v100x2_p100x6.json"
VGG = "examples/models/vgg19.json.gz"


class Compared(CommandLine):
    def plan(self, name, *arguments):
        out = self.path / name
        result = run("plan", *arguments, "--out", out, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return out

    def test_two_plans(self):
        one = self.plan("one.json", "--planner", "hap", "--model", VGG, "--cluster", MIXED)
        other = self.plan("other.json", "--model", VGG, "--cluster", MIXED)
        first, second = (json.loads(p.read_text()) for p in (one, other))
        compared = json.loads(run("diff", one, other, "--json").stdout)
        self.assertEqual(compared["cost"], [first["cost"], second["cost"] if "cost" in second else compared["cost"][1]])
        priced = json.loads(run("cost", "--plan", other, "--cluster", MIXED, "--json").stdout)
        self.assertAlmostEqual(compared["cost"][1], priced["cost"], delta=1e-12)
        self.assertIn("pipeline", compared["words"])
        held = sum(len(row["names"]) for row in compared["parameters"])
        self.assertGreater(held, 0)
        shown = run("diff", one, other)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertLessEqual(max(map(len, shown.stdout.splitlines())), 80)
        self.assertIn("Parameters held otherwise", shown.stdout)
        same = json.loads(run("diff", one, one, "--json").stdout)
        self.assertEqual((same["time"], same["memory_bytes"], same["words"], same["parameters"]), ({}, {}, {}, []))
        self.assertIn("the same", run("diff", one, one).stdout)
        strategy = self.plan("amp.json", "--planner", "amp", "--model", MODEL, "--cluster", CLUSTER)
        self.assertIn("stage 0", run("diff", one, strategy).stdout)
        self.refused(run("diff", one, self.path / "absent.json"), "absent.json")
        self.refused(run("diff", one, MIXED), "expected heddle.plan")

    def test_another_cluster_by_its_numbers(self):
        plan = self.plan("plan.json", "--planner", "hap", "--model", MODEL, "--cluster", MIXED)
        cluster = json.loads(pathlib.Path(MIXED).read_text())
        cluster["links"]["inter"]["bandwidth"] *= 10
        cluster["device_types"][1]["rates"]["float32"] /= 2
        cluster["device_types"][0]["memory"] = 1e6
        by_file = json.loads(run("cost", "--plan", plan, "--cluster", self.write("c.json", cluster), "--json").stdout)
        changes = ("--set", "inter.bandwidth=13e9", "--set", "P100.rates.float32=4e12", "--set", "device_types[0].memory=1e6")
        by_changes = json.loads(run("cost", "--plan", plan, "--cluster", MIXED, *changes, "--json").stdout)
        self.assertEqual(by_changes["time"], by_file["time"])
        self.assertEqual((by_changes["status"], by_changes["reason"]), ("infeasible", by_file["reason"]))
        self.assertEqual(by_changes["warnings"], [])  # it is the file the plan was made for
        faster = json.loads(run("cost", "--plan", plan, "--cluster", MIXED, *changes[:2], "--json").stdout)
        self.assertLess(faster["cost"], json.loads(plan.read_text())["cost"])
        for change, words in (("inter.bandwidth", "expected PLACE=NUMBER"), ("inter.bandwidth=fast", "expected PLACE=NUMBER"), ("inter.width=1", "no such number"),
                              ("H100.memory=1", "no such number"), ("device_types[7].memory=1", "no such number"), ("links.inter=1", "no such number"),
                              ("V100.name=1", "no such number"), ("inter.bandwidth=-1", "bandwidth")):
            self.refused(run("cost", "--plan", plan, "--cluster", MIXED, "--set", change), words)

    def blocks(self, count):
        """A model of equal blocks of two layers, between a first and a last one."""
        nodes = [{"id": 0, "name": "x", "op": "placeholder", "target": "x", "inputs": [], "args": [], "kwargs": {}, "out": {"kind": "tensor", "shape": [2048, 2048], "dtype": "float32"}}]

        def add(op, target, inputs, shape, **fields):
            node = {"id": len(nodes), "name": target.replace(".", "_") + f"_{len(nodes)}", "op": op, "target": target, "inputs": inputs, "args": [{"node": i} for i in inputs], "kwargs": {},
                    "out": {"kind": "tensor", "shape": shape, "dtype": "float32"}, **fields}
            if op == "parameter":
                node.update(name=target.replace(".", "_"), args=[])
            nodes.append(node)
            return node["id"]

        def linear(x, name, to):
            w = add("parameter", name, [], [to, nodes[x]["out"]["shape"][1]], requires_grad=True)
            y = add("call_function", "torch.nn.functional.linear", [x, w], [2048, to])
            nodes[y].update(args=[], kwargs={"input": {"node": x}, "weight": {"node": w}, "bias": None})
            return y

        y = linear(0, "first.weight", 2048)
        for n in range(count):
            y = add("call_function", "torch.relu", [linear(y, f"layers.{n}.up.weight", 8192)], [2048, 8192])
            y = linear(y, f"layers.{n}.down.weight", 2048)
        y = linear(y, "last.weight", 16)
        y = add("call_function", "torch.sum", [y], [])
        add("output", "output", [y], [])
        return self.write("blocks.json", {"format": "heddle.model", "version": 1, "meta": {"model": "blocks", "mode": "train", "n_nodes": len(nodes), "n_params": 0, "source": "a test", "global_batch": 2048}, "nodes": nodes})

    def megatron(self, plan):
        result = run("export", "--plan", plan, "--to", "megatron")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return dict((line.split(" ", 1) + [""])[:2] for line in result.stdout.splitlines())

    def test_exports(self):
        out = self.plan("plan.json", "--planner", "hap", "--model", VGG, "--cluster", MIXED)
        for framework in ("megatron", "deepspeed"):
            self.refused(run("export", "--plan", out, "--to", framework), "cannot be expressed", "uneven", "nearest is data parallelism at even shares, at 58")
        text = self.path / "dtensor.json"
        self.assertEqual(run("export", "--plan", out, "--to", "dtensor", "--out", text).stdout, "")
        stage = json.loads(text.read_text())["stages"][0]
        plan = json.loads(out.read_text())
        shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
        cut = 0
        for name, row in stage["parameters"].items():
            for p in row["stored"]:
                if isinstance(p, dict) and "strided" not in p:
                    cut += 1
                    self.assertEqual(sum(p["parts"]), shapes[name][int(re.search(r"\d+", p["placement"]).group())])
        self.assertGreater(cut, 0)
        self.assertEqual(stage["mesh"], [8])

        # A pipeline of single devices, whose stages have whole blocks but not equally many.
        cluster = json.loads(pathlib.Path(MIXED).read_text())
        cluster["machines"] = [{"type": "V100", "count": 2}, {"type": "P100", "count": 1}]
        cluster["links"]["inter"]["bandwidth"] = 1e9
        pipeline = self.plan("pipeline.json", "--model", self.blocks(12), "--cluster", self.write("three.json", cluster), "--optimizer", "sgd")
        arguments = self.megatron(pipeline)
        stages = json.loads(pipeline.read_text())["pipeline"]
        self.assertEqual(arguments["--pipeline-model-parallel-size"], str(len(stages)))
        blocks = [int(n or 0) for n in re.findall(r"E?(?:t\*(\d+))?(?:\||L)", arguments["--pipeline-model-parallel-layout"])]
        self.assertEqual((len(blocks), sum(blocks)), (len(stages), 12))
        placed = json.loads(run("export", "--plan", pipeline, "--to", "dtensor").stdout)
        for stage, count in zip(placed["stages"], blocks):
            self.assertEqual(len({m.group() for name in stage["parameters"] if (m := re.match(r"layers\.\d+", name))}), count)
        micro_batches = placed["micro_batches"]
        self.assertEqual(int(arguments["--micro-batch-size"]) * micro_batches, int(arguments["--global-batch-size"]))
        self.refused(run("export", "--plan", pipeline, "--to", "deepspeed"), "which layers a stage has")

        # Data parallelism, its parameters kept in each of the ways that DeepSpeed has.
        small = ("--planner", "hap", "--model", "examples/formats/model.json", "--cluster", CLUSTER, "--pin", "x=shard(0)", "--pin")
        for form, stage in (("replicated", 1), ("shard(0)", 3)):
            configuration = json.loads(run("export", "--plan", self.plan("small.json", *small, "linear.weight=" + form), "--to", "deepspeed").stdout)
            self.assertEqual(configuration["zero_optimization"]["stage"], stage)
            self.assertEqual((configuration["train_batch_size"], configuration["train_micro_batch_size_per_gpu"]), (8, 2))

        alone = self.plan("alone.json", "--planner", "hap", "--model", MODEL, "--cluster", "examples/clusters/single.json")
        arguments = self.megatron(alone)
        self.assertEqual((arguments["--tensor-model-parallel-size"], arguments["--pipeline-model-parallel-size"]), ("1", "1"))
        self.assertEqual(arguments["--micro-batch-size"], arguments["--global-batch-size"])
        configuration = json.loads(run("export", "--plan", alone, "--to", "deepspeed").stdout)
        self.assertEqual(configuration["train_batch_size"], configuration["train_micro_batch_size_per_gpu"])
        self.assertEqual(configuration["zero_optimization"]["stage"], 0)
        strategy = self.plan("amp.json", "--planner", "amp", "--model", MODEL, "--cluster", CLUSTER)
        self.refused(run("export", "--plan", strategy, "--to", "megatron"), "strategy of layers")
        self.assertEqual(run("export", "--plan", alone, "--to", "pencil").returncode, 2)


if __name__ == "__main__":
    unittest.main()
