"""Plans beside each other, on other clusters, and for other frameworks: heddle diff, heddle cost --set, heddle export, and what
heddle plan says beside a plan.

Usage: test_compare.py HEDDLE, from the repository root.
"""
import argparse
import gzip
import json
import pathlib
import re
import shlex
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
        small = ("--planner", "hap", "--model", "examples/formats/model.json", "--cluster", "examples/clusters/p100x4.json", "--pin")
        kept, cut = (self.plan(form + ".json", *small, "linear.weight=" + form) for form in ("replicated", "shard(0)"))
        held = json.loads(run("diff", kept, cut, "--json").stdout)["parameters"]
        self.assertEqual([row["names"] for row in held], [["linear.weight"]])
        self.assertIn("Parameters held otherwise", run("diff", kept, cut).stdout)
        shown = run("diff", one, other)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertLessEqual(max(map(len, shown.stdout.splitlines())), 80)
        self.assertIn("stage 2", shown.stdout)
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
        self.assertRegex(run("cost", "--plan", plan, "--cluster", MIXED, *changes).stdout, r", gradient communication [\d.e-]+, update [\d.e-]+, gathers of updated parameters ")
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

    def summary(self, *arguments):
        result = run("plan", *arguments, "--json")
        self.assertEqual(result.returncode, 0, result)
        return json.loads(result.stdout)

    def test_what_a_choice_costs(self):
        weight = "layers.1.attention.out_proj.weight"
        inputs = ("--planner", "hap", "--model", MODEL, "--cluster", MIXED)
        free = self.planned("--cluster", MIXED)[1]["cost"]
        forms = ("replicated", "mirrored", "partial", "shard(0)", "shard(1)", "shard(1.1)")
        for left in ("shard(0)", "shard(1)"):
            rules = [word for form in forms if form != left for word in ("--forbid", f"{weight}={form}")]
            out, asked = self.planned("--cluster", MIXED, *rules, "--why-not")
            plan = json.loads(out.read_text())
            number = [t["name"] for t in plan["tensors"]].index(weight)
            self.assertEqual([s["to"] for s in plan["steps"] if s["do"] == "read" and s["tensor"] == number], [left])
            pinned = self.summary(*inputs, "--pin", f"{weight}={left}")["cost"]  # all that is left
            self.assertAlmostEqual(asked["cost"], pinned, delta=1e-9 * pinned)
            self.assertEqual(asked["why_not"]["cost"], [free, asked["cost"]])
            self.assertGreater(asked["cost"], free)
            moved = {name for row in asked["why_not"]["parameters"] for name in row["names"]}
            self.assertIn(weight, moved)
        shown = run("plan", *inputs, *rules, "--why-not").stdout
        self.assertLessEqual(max(map(len, shown.splitlines())), 80)
        self.assertRegex(shown, r"What --pin and --forbid cost\n\nSeconds per iteration\n +without +with +difference\n")
        none = run("plan", *inputs, *(word for form in forms for word in ("--forbid", f"{weight}={form}")), "--why-not", "--json")
        self.assertEqual((none.returncode, json.loads(none.stdout)["why_not"]["cost"]), (3, [free, None]))
        self.assertEqual(run("plan", *inputs, "--why-not").returncode, 2)
        self.refused(run("plan", *inputs, "--forbid", "none=partial"), "--forbid none=partial", "no tensor 'none'")

    def test_without_a_planner_a_choice_is_compared_with_the_plan_without_it(self):
        weight = "layers.1.attention.out_proj.weight"
        machines = self.write("machines.json", json.loads(pathlib.Path("examples/clusters/v100_p100_8x8.json").read_text()) | {"machines": [{"type": "P100", "devices": 2, "count": 2}]})
        for cluster in (MIXED, machines):
            inputs = ("--model", MODEL, "--cluster", cluster)
            free = self.summary(*inputs)["cost"]
            out = self.path / "pinned.json"
            asked = self.summary(*inputs, "--pin", f"{weight}=shard(1)", "--why-not", "--out", out)
            plan = json.loads(out.read_text())
            number = [t["name"] for t in plan["tensors"]].index(weight)
            self.assertEqual([s["to"] for s in plan["steps"] if s["do"] == "read" and s["tensor"] == number], ["shard(1)"])
            self.assertEqual(plan["provenance"]["planner"], "hap")  # the family that joint chose
            self.assertEqual(asked["why_not"]["cost"], [free, asked["cost"]])
            self.assertIn("that keep the pins", asked["space"])
            none = run("plan", *inputs, "--pin", f"{weight}=shard(0)", "--pin", f"{weight}=shard(1)", "--why-not", "--json")
            self.assertEqual((none.returncode, json.loads(none.stdout)["why_not"]["cost"]), (3, [free, None]))

    def test_plans_made_before(self):
        folder = self.path / "plans"
        inputs = ("--model", "examples/formats/model.json", "--cluster", CLUSTER)
        for options in (("--planner", "hap"), ("--optimizer", "sgd"), ("--planner", "amp"), ("--planner", "ditto")):
            plain, first, second = (run("plan", *inputs, *options, *cache, "--no-times") for cache in ((), ("--cache", folder), ("--cache", folder)))
            self.assertEqual([(r.returncode, r.stdout, r.stderr) for r in (first, second)], 2 * [(0, plain.stdout, "")])
        self.assertEqual(len(list(folder.iterdir())), 4)
        asked = ("plan", *inputs, "--planner", "hap", "--cache", folder, "--no-times", "--json")
        plain = run(*asked).stdout
        entry, = (e for e in folder.iterdir() if b"--planner hap" in gzip.decompress(e.read_bytes()))
        kept = entry.read_bytes()
        entry.write_bytes(gzip.compress(gzip.decompress(kept).replace(b'"scaled"', b'"as it is kept"')))
        self.assertEqual(json.loads(run(*asked).stdout)["provenance"]["model"], "as it is kept")  # it is read, not planned
        for damaged in (kept[:500], kept[:-9] + b"x" + kept[-8:], b"", gzip.compress(b"model x\n\n{}")):
            entry.write_bytes(damaged)
            anew, again = run(*asked), run(*asked)
            self.assertEqual((anew.stdout, again.stdout, again.stderr), (plain, plain, ""))
            self.assertEqual(len(anew.stderr.splitlines()), 1, anew.stderr)
            self.assertRegex(anew.stderr, rf"^warning: {re.escape(str(entry))}: .*; planned anew\n$")
        self.assertEqual(len(list(folder.iterdir())), 4)
        self.refused(run("plan", *inputs, "--cache", entry), "cannot be made")

    def stored(self, plan):
        """By device and parameter, the elements that a plan of one axis has there: each by its place."""
        cuts = {(tensor, factor): c["counts"] for c in plan["cuts"] for tensor, factor in c["members"]}
        devices = len(plan["devices"]) if "devices" in plan else len(plan["ratios"][0])
        kept = [{} for _ in range(devices)]
        for step in plan["steps"]:
            tensor = plan["tensors"][step.get("tensor", 0)]
            if step["do"] != "read" or tensor["role"] != "parameter":
                continue
            rows, columns = (tensor["shape"] + [1])[:2]
            form = re.match(r"shard\((\d)\)", step.get("from", step["to"]))
            for device, mine in enumerate(kept):
                places = [(r, c) for r in range(rows) for c in range(columns)]
                if form:
                    factor = int(form.group(1))  # of these tensors, factors are dimensions
                    counts = cuts[(step["tensor"], factor)]
                    begin = sum(counts[:device])
                    places = [p for p in places if begin <= p[factor] < begin + counts[device]]
                mine[tensor["name"]] = set(places)
        return kept

    def test_going_on_from_a_plan(self):
        small = ("--planner", "hap", "--model", "examples/formats/model.json", "--cluster", CLUSTER, "--optimizer", "sgd", "--pin", "x=shard(0)")
        ways = [("--pin", f"{name}={form}") for name, forms in (("linear.weight", ("replicated", "shard(0)", "shard(1)")),) for form in forms]
        plans = [self.plan(f"{n}.json", *small, *way) for n, way in enumerate(ways)]
        held = [self.stored(json.loads(p.read_text())) for p in plans]
        moves = 0
        for a, old in enumerate(plans):
            for b, way in enumerate(ways):
                found = self.summary(*small, *way, "--from", old, "--iterations", 1e12)["from"]
                lacking = sum(len(wanted[name] - had.get(name, set())) for had, wanted in zip(held[a], held[b]) for name in wanted)
                self.assertEqual((found["moved_bytes"], found["from_checkpoint_bytes"]), (4 * lacking, 0), (a, b))
                moves += lacking > 0
        self.assertGreater(moves, 2)

        vgg = ("--model", VGG, "--cluster", MIXED)
        whole = self.plan("whole.json", "--planner", "hap", *vgg, "--pin", "classifier.0.weight=replicated")
        out = self.path / "next.json"
        kept = self.summary("--planner", "hap", *vgg, "--from", whole, "--iterations", 0.01, "--out", out)
        of = kept["from"]
        self.assertEqual((kept["cost"], of["kept"]), (of["cost_before"], True))
        self.assertAlmostEqual(kept["cost"], json.loads(whole.read_text())["cost"], delta=1e-12)
        self.assertEqual(json.loads(run("diff", whole, out, "--json").stdout)["parameters"], [])
        self.assertGreaterEqual(of["cost_anew"] + of["seconds_to_move"] / 0.01, of["cost_before"])
        # What has to pay for itself soon moves less.
        free = self.summary("--planner", "hap", *vgg, "--from", whole, "--iterations", 1e12)["from"]
        self.assertEqual(free["forms_kept"], 0)
        self.assertGreater(of["forms_kept"], 0)
        self.assertLess(of["seconds_to_move"], free["seconds_to_move"])
        moved = self.summary(*vgg, "--from", whole)  # to stages
        self.assertLess(moved["cost"], of["cost_anew"])
        self.assertEqual((moved["cost"], moved["from"]["kept"]), (moved["from"]["cost_anew"], False))
        # Machines that were not there have nothing; those that are gone had what nobody else has.
        cluster = json.loads(pathlib.Path(MIXED).read_text())
        cluster["machines"] = [m for m in cluster["machines"] if m["type"] != "V100"]
        fewer = self.summary("--planner", "hap", "--model", VGG, "--cluster", self.write("fewer.json", cluster), "--from", whole)["from"]
        self.assertEqual((fewer["cost_before"], fewer["kept"]), (None, False))
        self.assertGreater(fewer["from_checkpoint_bytes"], 0)
        self.refused(run("plan", "--model", MODEL, "--cluster", MIXED, "--from", whole), "is not a plan of " + MODEL)
        strategy = self.plan("amp.json", "--planner", "amp", "--model", MODEL, "--cluster", CLUSTER)
        self.refused(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--from", strategy), "strategy of layers")

    def test_what_moves_is_part_of_the_choice(self):
        vgg = ("--model", VGG, "--cluster", MIXED)
        before, out, cache = self.plan("before.json", "--planner", "hap", *vgg), self.path / "next.json", self.path / "plans"
        anew = self.summary(*vgg)
        free = self.summary(*vgg, "--from", before, "--iterations", 1e12)
        self.assertEqual((free["cost"], free["status"], free["lower_bound"]), (anew["cost"], anew["status"], anew["lower_bound"]))
        for iterations in (1e-3, 15, 1000):
            asked = (*vgg, "--from", before, "--iterations", iterations, "--no-times")
            found = self.summary(*asked, "--out", out, "--cache", cache)
            self.assertEqual(self.summary(*asked, "--cache", cache), found)
            of = found["from"]
            total = found["cost"] + (0 if of["kept"] else of["seconds_to_move"] / iterations)
            self.assertLessEqual(total, of["cost_before"] * (1 + 1e-9))
            self.assertLessEqual(total, (anew["cost"] + free["from"]["seconds_to_move"] / iterations) * (1 + 1e-9))
            self.assertLessEqual(found["lower_bound"], anew["cost"])
            self.assertTrue(of["kept"] or iterations > 1)
            self.assertGreaterEqual(of["cost_anew"], anew["cost"])
            self.assertLessEqual(of["seconds_to_move"], free["from"]["seconds_to_move"])
            checked = run("verify", "--plan", out, "--model", VGG, "--cluster", MIXED, "--no-run")
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), checked.stdout)
        for wrong in (("--from", before, "--iterations", 0), ("--from", before, "--iterations", "soon"), ("--iterations", 10)):
            self.assertEqual(run("plan", *vgg, *wrong).returncode, 2)

    def test_other_clusters(self):
        cluster = json.loads(pathlib.Path(MIXED).read_text())
        cluster["machines"] = [{"type": "V100", "count": 1}, {"type": "P100", "count": 2}]
        model, three = self.blocks(1), self.write("three.json", cluster)
        inputs = ("--planner", "hap", "--model", model)
        found = self.summary(*inputs, "--cluster", three, "--sensitivity", "--sweep")
        plan = self.plan("plan.json", *inputs, "--cluster", three)
        rows = {row["name"]: row for row in found["sensitivity"]["numbers"]}
        self.assertEqual(set(rows), {"inter.bandwidth", *(f"{t}.{what}" for t in ("V100", "P100") for what in ("rates", "bandwidth", "memory"))})
        changes = 0
        for side, factor in (("down", 1 / 8), ("up", 8)):
            row = rows["inter.bandwidth"]
            for at in ("same", "changed"):
                if row[side][at] is None:
                    self.assertAlmostEqual(row[side]["same"], factor * row["now"])
                    continue
                cluster["links"]["inter"]["bandwidth"] = row[side][at]
                other = self.plan("other.json", *inputs, "--cluster", self.write("other.cluster.json", cluster))
                differs = json.loads(run("diff", plan, other, "--json").stdout)["parameters"]
                self.assertEqual(bool(differs), at == "changed")
                changes += at == "changed"
            if row[side]["changed"]:
                self.assertLess(max(row[side]["changed"] / row[side]["same"], row[side]["same"] / row[side]["changed"]), 1.1)
        self.assertGreater(changes, 0)
        self.assertEqual([(row["devices"], row["types"]) for row in found["sweep"]], [(1, "1 x V100"), (2, "1 x V100, 1 x P100"), (3, "1 x V100, 2 x P100")])
        cluster["links"]["inter"]["bandwidth"] = rows["inter.bandwidth"]["now"]
        cluster["machines"][1]["count"] = 1
        two = self.summary(*inputs, "--cluster", self.write("two.json", cluster))["cost"]
        self.assertEqual([row["cost"] for row in found["sweep"][1:]], [two, found["cost"]])
        shown = run("plan", "--planner", "hap", "--model", "examples/formats/model.json", "--cluster", CLUSTER, "--sensitivity", "--sweep", "--no-times").stdout
        self.assertLessEqual(max(map(len, shown.splitlines())), 80, shown)
        self.assertRegex(shown, r"\n  inter.bandwidth +1.30 GB/s +[\d.]+ MB/s")
        self.assertRegex(shown, r"\n +4  4 x P100 ")

    def test_another_strategy_is_told_from_that_now(self):
        found = self.summary("--planner", "hap", "--model", "examples/models/vit_2.json.gz", "--cluster", "examples/clusters/v100x4_nvlink.json", "--sensitivity", "--sweep")
        now = found["sweep"][-1]["strategy"]
        told = [row[side]["then"] for row in found["sensitivity"]["numbers"] for side in ("down", "up") if "then" in row[side]]
        self.assertFalse([then for then in told if sorted(then.split(", ")) == sorted(now.split(", "))])
        self.assertRegex(" ".join(told), r"as now, but \d+ parameters?, such as [\w.]+: [\w ]+ -> [\w ]+")

    def megatron(self, plan):
        result = run("export", "--plan", plan, "--to", "megatron")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        self.accepted_by_megatron(result.stdout)
        return dict((line.split(" ", 1) + [""])[:2] for line in result.stdout.splitlines())

    def accepted_by_megatron(self, text):
        """Read the options as Megatron-LM's megatron/training/arguments.py declares them (and its guides on pipeline
        layouts and on Megatron-FSDP): names, numbers, choices, and what one option asks of others."""
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        for name in ("tensor-model-parallel-size", "pipeline-model-parallel-size", "expert-model-parallel-size", "micro-batch-size", "global-batch-size",
                     "microbatch-group-size-per-virtual-pipeline-stage", "recompute-num-layers"):
            parser.add_argument("--" + name, type=int, required=name.startswith(("tensor", "pipeline", "micro-batch", "global")))
        for name in ("use-distributed-optimizer", "use-megatron-fsdp", "no-gradient-accumulation-fusion"):
            parser.add_argument("--" + name, action="store_true")
        parser.add_argument("--pipeline-model-parallel-layout")
        parser.add_argument("--recompute-granularity", choices=["full", "selective"])
        parser.add_argument("--recompute-method", choices=["uniform", "block"])
        parser.add_argument("--data-parallel-sharding-strategy", choices=["no_shard", "optim", "optim_grads", "optim_grads_params"], default="no_shard")
        parser.add_argument("--ckpt-format", choices=["torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"], default="torch_dist")
        read = parser.parse_args(shlex.split(text))
        if read.pipeline_model_parallel_layout:  # stages by bars, as many as the ranks of the pipeline or a multiple: E, decoders, L
            stages = read.pipeline_model_parallel_layout.split("|")
            self.assertEqual(len(stages) % read.pipeline_model_parallel_size, 0, text)
            self.assertRegex("".join(stages), r"^E(t(\*\d+)?)+L$")
            self.assertNotIn("t*0", text)
        self.assertEqual(read.recompute_granularity == "full", read.recompute_method is not None)
        self.assertEqual(read.recompute_method is not None, read.recompute_num_layers is not None)
        if read.use_megatron_fsdp:  # what its guide requires
            self.assertTrue(read.use_distributed_optimizer and read.no_gradient_accumulation_fusion)
            self.assertEqual(read.ckpt_format, "fsdp_dtensor")
        self.assertEqual(read.use_megatron_fsdp, read.data_parallel_sharding_strategy != "no_shard")

    def torchtitan(self, plan):
        result = run("export", "--plan", plan, "--to", "torchtitan")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        made = {}
        header, text = result.stdout.split("\n", 1)
        self.assertEqual(header, "from torchtitan.config import ParallelismConfig, TrainingConfig")
        exec(text, {"ParallelismConfig": dict, "TrainingConfig": dict}, made)
        return made["parallelism"], made["training"]

    def test_a_dimension_that_two_axes_cut_along_unlike_factors(self):
        cluster = {"format": "heddle.cluster", "version": 1, "name": "pairs", "machines": [{"type": "d", "devices": 2, "count": 2}],
                   "device_types": [{"name": "d", "memory": 1e12, "bandwidth": 1e10, "rates": {"float32": 1e9}}],
                   "links": {"inter": {"bandwidth": 3e8, "latency": 0.0}, "intra": {"bandwidth": 1e10, "latency": 0.0}}}
        out = self.plan("plan.json", "--planner", "hap", "--mesh", "2x2", "--model", "examples/models/vit_2.json.gz", "--cluster", self.write("pairs.json", cluster))
        stored = json.loads(run("export", "--plan", out, "--to", "dtensor").stdout)["stages"][0]["parameters"]["layers.1.attention.in_proj_bias"]["stored"]

        def held(rows, place):
            """The rows that a device has of a dimension."""
            for axis, placed in enumerate(stored):
                parts, widths = placed["parts"], placed["widths"]
                if isinstance(parts[0], list):
                    parts, widths = parts[place[0]], widths[place[0]]
                self.assertEqual(sum(parts), len(rows))
                steps, before, mine, begin = len(rows) // sum(widths), sum(parts[:place[axis]]) // sum(widths), [], 0
                for width in widths: # pieces lie side by side
                    mine += rows[begin + before * width:begin + (before + parts[place[axis]] // sum(widths)) * width]
                    begin += steps * width
                rows = mine
            return rows

        # Queries, keys and values of 12 heads of 64 elements: one axis cuts the elements of all heads, the other the heads.
        for i in range(2):
            for j in range(2):
                rows = [768 * which + 64 * head + e for which in range(3) for head in range(6 * j, 6 * j + 6) for e in range(32 * i, 32 * i + 32)]
                self.assertEqual(held(list(range(2304)), (i, j)), rows)

    def test_exports(self):
        out = self.plan("plan.json", "--planner", "hap", "--model", VGG, "--cluster", MIXED)
        refused = run("export", "--plan", out, "--to", "megatron")
        self.refused(refused, "cannot be expressed", "no stack of equal blocks, which Megatron-LM has")
        self.assertNotIn("nearest", refused.stderr)  # there is none
        for framework, word in (("deepspeed", "uneven"), ("torchtitan", "uneven"), ("shardy", "unequal")):
            self.refused(run("export", "--plan", out, "--to", framework), "cannot be expressed", word, "nearest is data parallelism at even shares, at 58")
        meshed = self.plan("meshed.json", "--mesh", "8x4", "--model", MODEL, "--cluster", "examples/clusters/v100x8_p100x24.json")
        least = json.loads(meshed.read_text())
        more = 100 * (least["baselines"]["DP-EV"] / least["cost"] - 1)
        self.refused(run("export", "--plan", meshed, "--to", "megatron"), f"nearest is data parallelism at even shares, at {more:.1f} % more time")
        text = self.path / "dtensor.json"
        self.assertEqual(run("export", "--plan", out, "--to", "dtensor", "--out", text).stdout, "")
        stage = json.loads(text.read_text())["stages"][0]
        plan = json.loads(out.read_text())
        shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
        cut = 0
        for name, row in stage["parameters"].items():
            for p in row["stored"]:
                if isinstance(p, dict):
                    cut += 1
                    self.assertEqual(sum(p["parts"]), shapes[name][int(re.search(r"\d+", p["placement"]).group())])
        self.assertGreater(cut, 0)
        self.assertEqual(stage["mesh"], [8])
        # Each segment has factors of its own, which are the same elements.
        in_segments = self.plan("segments.json", "--planner", "hap", "--model", VGG, "--cluster", MIXED, "--segments", "layers")
        lists = re.findall(r'"parts": \[([^]]*)\]', json.dumps(json.loads(run("export", "--plan", in_segments, "--model", VGG, "--to", "dtensor").stdout)))
        self.assertGreater(len(lists), 5)
        for parts in lists:
            self.assertGreater(sum(map(int, parts.split(","))), 8)
        # With the model, what modules do: where one has a tensor in a form and another in another, one of them changes it.
        placed = json.loads(run("export", "--plan", out, "--model", VGG, "--to", "dtensor").stdout)
        self.assertEqual(placed["nearest"], {"name": "data parallelism at shares by speed", "more": plan["baselines"]["DP-CP"] / plan["cost"] - 1})
        stage = placed["stages"][0]
        self.assertEqual(len(stage["loss"]), 1)
        for name, row in stage["modules"].items():
            self.assertIn(f"{name}.weight", stage["parameters"])
            self.assertEqual([set(row), {len(t[form]) for side in ("inputs", "outputs") for t in row[side] for form in t}], [{"inputs", "outputs"}, {1}])
        self.assertTrue(any(t["made"] != t["given"] for row in stage["modules"].values() for t in row["outputs"]))
        self.refused(run("export", "--plan", out, "--model", VGG, "--to", "megatron"), "--model", "--to dtensor alone")
        self.refused(run("export", "--plan", out, "--model", MODEL, "--to", "dtensor"), "is none of")

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
        titan, training = self.torchtitan(pipeline)
        self.assertEqual((titan["pipeline_parallel_degree"], len(titan["module_fqns_per_model_part"])), (len(stages), len(stages)))
        for names, count in zip(titan["module_fqns_per_model_part"], blocks):
            self.assertEqual(sum(name.startswith("layers.") for name in names), count)
        self.assertEqual([name for names in titan["module_fqns_per_model_part"] for name in names], ["first", *(f"layers.{n}" for n in range(12)), "last"])
        self.assertEqual((titan["pipeline_parallel_microbatch_size"], training), (int(arguments["--micro-batch-size"]), {"local_batch_size": 2048, "global_batch_size": 2048}))
        placed = json.loads(run("export", "--plan", pipeline, "--to", "dtensor").stdout)
        for stage, count in zip(placed["stages"], blocks):
            self.assertEqual(len({m.group() for name in stage["parameters"] if (m := re.match(r"layers\.\d+", name))}), count)
        micro_batches = placed["micro_batches"]
        self.assertEqual(int(arguments["--micro-batch-size"]) * micro_batches, int(arguments["--global-batch-size"]))
        self.refused(run("export", "--plan", pipeline, "--to", "deepspeed"), "which layers a stage has")

        # Two devices, which the stages pass in rounds.
        cluster["machines"] = [{"type": "V100", "count": 2}]
        rounds = self.plan("rounds.json", "--model", self.blocks(12), "--cluster", self.write("two.json", cluster), "--optimizer", "sgd", "--sends-beside")
        several = json.loads(rounds.read_text())["pipeline"]
        self.assertEqual([stage["devices"] for stage in several], [[0], [1]] * (len(several) // 2))
        self.assertGreater(len(several), 2)
        compared = json.loads(run("diff", pipeline, rounds, "--json").stdout)
        self.assertEqual(compared["cost"], [json.loads(plan.read_text())["cost"] for plan in (pipeline, rounds)])
        self.assertIn(f"{len(several)} stages in {len(several) // 2} rounds", run("diff", pipeline, rounds).stdout)
        many = self.plan("many.json", "--model", "examples/models/gpt2_12.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json")
        self.assertGreater(len(json.loads(many.read_text())["pipeline"]), 12)  # of which the first are shown
        self.assertIn("stages not shown", json.loads(run("diff", pipeline, many, "--json").stdout)["words"])
        arguments = self.megatron(rounds)
        self.assertEqual(arguments["--pipeline-model-parallel-size"], "2")
        in_rounds = [int(n or 0) for n in re.findall(r"E?(?:t\*(\d+))?(?:\||L)", arguments["--pipeline-model-parallel-layout"])]
        self.assertEqual((len(in_rounds), sum(in_rounds)), (len(several), 12))
        titan, _ = self.torchtitan(rounds)
        self.assertEqual((titan["pipeline_parallel_degree"], titan["pipeline_parallel_schedule"]), (2, "Interleaved1F1B"))
        self.assertEqual([sum(name.startswith("layers.") for name in names) for names in titan["module_fqns_per_model_part"]], in_rounds)
        self.refused(run("export", "--plan", rounds, "--to", "deepspeed"), "which layers a stage has")
        arguments = self.megatron(pipeline)

        # The pipeline of before, where stages keep of a micro-batch what enters alone.
        recomputed = json.loads(pipeline.read_text())
        recomputed["pipeline"][0]["plan"]["provenance"]["recomputes"] = True
        self.refused(run("export", "--plan", self.write("some.json", recomputed), "--to", "megatron"), "recompute their activations in other ways")
        for stage in recomputed["pipeline"]:
            stage["plan"]["provenance"]["recomputes"] = True
        every = self.write("every.json", recomputed)
        added = {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": str(max(blocks))}
        self.assertEqual(self.megatron(every), {**arguments, **added})
        self.assertIn('ActivationCheckpointConfig(mode="full")', run("export", "--plan", every, "--to", "torchtitan").stdout)
        for stage in recomputed["pipeline"]:
            stage["plan"]["provenance"]["recomputes"] = "selective"
        every = self.write("every.json", recomputed)
        self.refused(run("export", "--plan", every, "--to", "megatron"), "chooses by modules")
        self.assertIn('ActivationCheckpointConfig(mode="selective")', run("export", "--plan", every, "--to", "torchtitan").stdout)

        # Forms say nothing of micro-batches in turn.
        turns = self.plan("turns.json", "--planner", "hidup", "--model", VGG, "--cluster", "examples/clusters/p100x4.json")
        written = run("export", "--plan", turns, "--to", "dtensor")
        self.assertEqual((written.returncode, "micro-batches take turns" in written.stderr), (0, True), written)

        # Data parallelism, its parameters kept in each of the ways that DeepSpeed has.
        small = ("--planner", "hap", "--model", "examples/formats/model.json", "--cluster", CLUSTER, "--pin", "x=shard(0)", "--pin")
        for form, stage in (("replicated", 1), ("shard(0)", 2)):  # gathered once
            configuration = json.loads(run("export", "--plan", self.plan("small.json", *small, "linear.weight=" + form), "--to", "deepspeed").stdout)
            self.assertEqual(configuration["zero_optimization"]["stage"], stage)
            self.assertEqual((configuration["train_batch_size"], configuration["train_micro_batch_size_per_gpu"]), (8, 2))
        self.refused(run("export", "--plan", self.path / "small.json", "--to", "shardy"), "unequal parts")  # three rows on four devices
        titan, training = self.torchtitan(self.path / "small.json")
        self.assertEqual((titan["data_parallel_replicate_degree"], titan["data_parallel_shard_degree"], training["local_batch_size"]), (1, 4, 2))
        self.assertEqual(titan["fsdp_reshard_after_forward"], "never")
        columns = self.plan("columns.json", *small, "linear.weight=shard(1)")
        self.assertEqual(run("export", "--plan", columns, "--to", "shardy").stdout, """sdy.mesh @stage0 = <["axis0"=4]>
// Stage 0: what is read, as it is stored
x {sdy.sharding = #sdy.sharding<@stage0, [{"axis0"}, {}]>}
linear.weight {sdy.sharding = #sdy.sharding<@stage0, [{}, {"axis0"}]>}
scale {sdy.sharding = #sdy.sharding<@stage0, [{}]>}
y {sdy.sharding = #sdy.sharding<@stage0, [{"axis0"}]>}
""")

        alone = self.plan("alone.json", "--planner", "hap", "--model", MODEL, "--cluster", "examples/clusters/single.json")
        arguments = self.megatron(alone)
        self.assertEqual((arguments["--tensor-model-parallel-size"], arguments["--pipeline-model-parallel-size"]), ("1", "1"))
        self.assertEqual(arguments["--micro-batch-size"], arguments["--global-batch-size"])
        configuration = json.loads(run("export", "--plan", alone, "--to", "deepspeed").stdout)
        self.assertEqual(configuration["train_batch_size"], configuration["train_micro_batch_size_per_gpu"])
        self.assertEqual(configuration["zero_optimization"]["stage"], 0)
        strategy = self.plan("amp.json", "--planner", "amp", "--model", MODEL, "--cluster", CLUSTER)
        self.refused(run("export", "--plan", strategy, "--to", "dtensor"), "strategy of layers")
        self.assertEqual(run("export", "--plan", alone, "--to", "pencil").returncode, 2)

    def test_the_nearest_plan(self):
        blocks = self.blocks(12)
        mixed = ("--model", blocks, "--cluster", MIXED)
        uneven = self.plan("uneven.json", "--planner", "hap", *mixed)
        written = self.path / "nearest.json"
        nearest = ("--nearest", *mixed, "--plan-out", written)
        for framework in ("megatron", "deepspeed", "torchtitan", "shardy"):
            self.assertEqual(run("export", "--plan", uneven, "--to", framework).returncode, 1)
            asked = run("export", "--plan", uneven, "--to", framework, *nearest)
            self.assertEqual(asked.returncode, 0, asked)
            name, more = re.fullmatch(r"heddle: the plan cannot be expressed: .*; this is (.*) at even shares, at (.*) % more time\n", asked.stderr).groups()
            made, best = json.loads(written.read_text())["cost"], json.loads(uneven.read_text())["cost"]
            self.assertEqual(more, f"{100 * (made / best - 1):.1f}", name)
            # What is written is that plan, which is verified and priced, and needs no other.
            again = run("export", "--plan", written, "--to", framework, *nearest[:-1], self.path / "same.json")
            self.assertEqual((again.stdout, again.stderr), (asked.stdout, ""))
            self.assertEqual((self.path / "same.json").read_text(), written.read_text())
            checked = json.loads(run("verify", "--plan", written, *mixed, "--json").stdout)
            self.assertTrue(checked["priced"])
        self.refused(run("export", "--plan", uneven, "--to", "megatron", "--model", blocks), "--model")
        self.assertEqual(run("export", "--plan", uneven, "--to", "megatron", "--nearest").returncode, 2)
        # On device groups there are strategies of one stage.
        grouped = json.loads(pathlib.Path("examples/clusters/v100x8_p100x24.json").read_text())
        for machines in grouped["machines"]:
            machines["grouped"] = True
        machines = ("--model", blocks, "--cluster", self.write("grouped.json", grouped))
        asked = run("export", "--plan", self.plan("groups.json", "--planner", "hap", *machines), "--to", "megatron", "--nearest", *machines)
        self.assertNotIn("device groups", asked.stderr)
        # Of a model that the framework does not know, there is no nearest plan either.
        vgg = self.plan("vgg.json", "--planner", "hap", "--model", VGG, "--cluster", "examples/clusters/single.json")
        refused = run("export", "--plan", vgg, "--to", "megatron", "--nearest", "--model", VGG, "--cluster", "examples/clusters/single.json")
        self.refused(refused, "no stack of equal blocks")
        # Where links between machines are slow, the nearest is a pipeline of equal stages.
        gpt = ("--model", "examples/models/gpt2_12.json.gz", "--cluster", "examples/clusters/h100x8_rtx4090x16.json")
        best = self.plan("best.json", *gpt, "--sends-beside")
        for framework, obstacle in (("megatron", "neither the batch is divided"), ("shardy", "unequal parts")):
            asked = run("export", "--plan", best, "--to", framework, "--nearest", *gpt, "--plan-out", written)
            self.assertEqual(asked.returncode, 0, asked)
            stages = json.loads(written.read_text())["pipeline"]
            self.assertRegex(asked.stderr, f"{obstacle}.*; this is .* in each of {len(stages)} stages at even shares, at [0-9.]* % more time")
            self.assertTrue(json.loads(run("verify", "--plan", written, *gpt, "--json").stdout)["priced"])
            self.assertEqual(run("export", "--plan", written, "--to", framework).stdout, asked.stdout)
        # A pipeline of it, which torchtitan cannot express, has one of a single stage.
        machines = ("--model", VGG, "--cluster", "examples/clusters/v100x4_nvlink.json")
        layers = self.plan("layers.json", "--planner", "amp", "--even", "--pipeline-degree", "2", "--layers", "6", *machines)
        asked = run("export", "--plan", layers, "--to", "torchtitan", "--nearest", *machines)
        self.assertEqual(asked.returncode, 0, asked)
        self.assertRegex(asked.stderr, "equal blocks, which pipelines of torchtitan have; this is ")

    def test_strategies_of_layers_for_frameworks(self):
        cluster = self.write("four.json", json.loads(pathlib.Path("examples/clusters/v100_p100_8x8.json").read_text()) | {"machines": [{"type": "V100", "devices": 2, "count": 2}]})
        for degrees in (("2", "2", "1"), ("2", "1", "2"), ("1", "4", "1")):
            pipeline, data, tensor = degrees
            model = ("--model", self.blocks(12))
            strategy = self.plan("amp.json", "--planner", "amp", "--even", *model, "--cluster", cluster,
                                 "--pipeline-degree", pipeline, "--data-degree", data, "--tensor-degrees", tensor)
            plan = json.loads(strategy.read_text())
            told = {framework: run("export", "--plan", strategy, "--to", framework, *model).stdout for framework in ("megatron", "torchtitan")}
            self.accepted_by_megatron(told["megatron"])
            batch = 2048 // int(data) // plan["micro_batches"]
            self.assertTrue(told["megatron"].startswith(f"--tensor-model-parallel-size {tensor}\n--pipeline-model-parallel-size {pipeline}\n--micro-batch-size {batch}\n--global-batch-size 2048\n"), told)
            for field, value in (("data_parallel_replicate_degree", data), ("data_parallel_shard_degree", "1"), ("tensor_parallel_degree", tensor), ("pipeline_parallel_degree", pipeline)):
                self.assertIn(f"    {field}={value},\n", told["torchtitan"])
            if pipeline != "1":
                parts = json.loads(re.search(r"module_fqns_per_model_part=(.*),\n", told["torchtitan"])[1])
                self.assertEqual((len(parts), [name for part in parts for name in part]), (int(pipeline), ["first", *(f"layers.{n}" for n in range(12)), "last"]))
        self.refused(run("export", "--plan", strategy, "--to", "megatron"), "--model says what parameters they have")
        self.refused(run("export", "--plan", strategy, "--to", "megatron", "--model", MODEL), "operators")


if __name__ == "__main__":
    unittest.main()
