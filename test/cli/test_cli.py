"""The command line as a person meets it: exit statuses, one line for bad input, files whole or not at all.

Usage: test_cli.py HEDDLE, from the repository root.
"""
import gzip
import json
import os
import pathlib
import pty
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HEDDLE = ""
MODEL = "examples/models/vit_2.json.gz"
CLUSTER = "examples/clusters/p100x4.json"


def run(*arguments, **options):
    return subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def write(self, name, content):
        path = self.path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def refused(self, result, *fragments):
        """Exit 1, nothing on stdout, one line on stderr that has all the fragments."""
        self.assertEqual(result.returncode, 1, result)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, lines[0])

    def test_data_parallelism_both_ways(self):
        names = {"DP-EV", "DP-CP"}
        for option, otherwise in (([], "with"), (["--gradient-overlap"], "without")):
            planned = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--json", *option)
            self.assertEqual(planned.returncode, 0, planned.stderr)
            summary = json.loads(planned.stdout)
            self.assertLessEqual(names, summary["baselines"].keys())
            self.assertEqual(set(summary["other_baselines"]), {f"{name}, {otherwise} gradient overlap" for name in names})
            table = run("plan", "--model", MODEL, "--cluster", CLUSTER, *option).stdout
            self.assertIn("\nUnder other options than the plan's, which may be dearer\n", table)
            self.assertIn(f"DP-CP, {otherwise} gradient overlap", table)

    def test_solver_of_ratios(self):
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--solver", "simplex").returncode, 2)
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", "--solver", "clp").returncode, 2)
        cluster = json.loads(pathlib.Path("examples/formats/preset_cluster.json").read_text())
        cluster["device_types"][0]["rates"] = {"float32": {"matmul": {"efficiency": {"scale": 1e10, "least": 0.05}}}}
        path = self.path / "cluster.json"
        path.write_text(json.dumps(cluster))
        by_clp, by_ipopt = (run("plan", "--model", MODEL, "--cluster", path, "--json", "--solver", name) for name in ("clp", "ipopt"))
        self.assertEqual(by_clp.returncode, 0, by_clp.stderr)
        if "without Ipopt" in by_ipopt.stderr:
            return self.refused(by_ipopt, "--solver")
        self.assertEqual((by_ipopt.returncode, by_ipopt.stderr), (0, ""))
        self.assertLessEqual(json.loads(by_ipopt.stdout)["cost"], 1.001 * json.loads(by_clp.stdout)["cost"])

    def test_plan_verify_cost(self):
        out, trace = self.path / "plan.json", self.path / "trace.json"
        planned = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--out", out, "--trace", trace, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertEqual(planned.stderr, "")
        summary = json.loads(planned.stdout)
        for field in ("status", "cost", "lower_bound", "expanded", "generated", "seconds", "warnings", "baselines", "memory_bytes", "memory_limit_bytes"):
            self.assertIn(field, summary)
        self.assertIn(summary["status"], ("optimal", "feasible"))
        self.assertLessEqual(summary["lower_bound"], summary["cost"])
        self.assertEqual(len(summary["memory_bytes"]), 4)
        for cost in summary["baselines"].values():
            self.assertTrue(cost is None or summary["cost"] <= cost)
        self.assertIn("traceEvents", json.loads(trace.read_text()))

        derived = run("verify", "--plan", out, "--model", MODEL, "--no-run")
        self.assertEqual((derived.returncode, derived.stderr), (0, ""))
        self.assertTrue(derived.stdout.startswith("valid: "))
        priced = json.loads(run("cost", "--plan", out, "--cluster", CLUSTER, "--json").stdout)
        self.assertEqual(priced["cost"], summary["cost"])
        self.assertEqual(priced["cost_when_planned"], summary["cost"])

        slower = json.loads(pathlib.Path(CLUSTER).read_text())
        slower["links"]["inter"]["bandwidth"] /= 4
        repriced = json.loads(run("cost", "--plan", out, "--cluster", self.write("slower.json", slower), "--json").stdout)
        self.assertGreater(repriced["cost"], summary["cost"])
        self.assertEqual(len(repriced["warnings"]), 1)

    def test_verify_of_pipeline_plans(self):
        out = self.path / "pipeline.json"
        verify = ("verify", "--plan", out, "--model", MODEL)
        for cluster, *options in (("examples/clusters/v100x4_nvlink.json", "--planner", "amp", "--tensor-degrees", 2), (CLUSTER, "--planner", "ditto", "--micro-batch", 32)):
            planned = run("plan", "--model", MODEL, "--cluster", cluster, "--out", out, *options)
            self.assertEqual(planned.returncode, 0, planned.stderr)
            verified = run(*verify, "--cluster", cluster, "--shrink", "--json")
            self.assertEqual((verified.returncode, verified.stderr), (0, ""))
            shown = json.loads(verified.stdout)
            self.assertEqual((shown["valid"], shown["executed"], shown["priced"], shown["shrunk"]), (True, True, True, True))
            self.assertLess(shown["max_relative_error"], 1e-10)
            self.assertEqual(run(*verify, "--no-run").returncode, 0)
            priced = json.loads(run("cost", "--plan", out, "--model", MODEL, "--cluster", cluster, "--json").stdout)
            self.assertEqual((priced["status"], priced["warnings"]), ("feasible", []))
            self.assertAlmostEqual(priced["cost"], priced["cost_when_planned"], delta=1e-12)
            self.assertAlmostEqual(priced["cost"], sum(priced["time"].values()), delta=1e-12)
        slower = json.loads(pathlib.Path(CLUSTER).read_text())
        for device_type in slower["device_types"]:
            device_type["overhead"] = 10 * device_type.get("overhead", 1e-5)
        repriced = run("cost", "--plan", out, "--model", MODEL, "--cluster", self.write("slower.json", slower))
        self.assertEqual(repriced.returncode, 0)
        self.assertIn("this is not the cluster", repriced.stderr)
        now, then = (float(part.split()[0].strip("(")) for part in repriced.stdout.split(" s per iteration "))
        self.assertGreater(now, then)
        self.refused(run("cost", "--plan", out, "--cluster", CLUSTER), "--model: is needed")
        plan = json.loads(out.read_text())
        for path, factor, problem in ((("stages", 0, "time"), 2, "the pipeline's time is"), (("bubble",), -5, "the share of time that stages wait is"),
                                      (("devices", 1, "memory"), 0.5, "device 1"), (("devices", 1, "memory_limit"), 0.9, "device 1: its memory limit is")):
            other = json.loads(out.read_text())
            place = other
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = factor * (place[path[-1]] or 1)
            broken = run("verify", "--plan", self.write("broken.json", other), "--model", MODEL, "--no-run", "--json")
            self.assertEqual(broken.returncode, 1, path)
            self.assertIn(problem, broken.stderr)
            self.assertFalse(json.loads(broken.stdout)["valid"])
            self.refused(run("cost", "--plan", self.path / "broken.json", "--model", MODEL, "--cluster", CLUSTER), "broken.json", problem)
        twice = json.loads(out.read_text())  # what agrees with itself is told by a cluster
        for stage in twice["stages"]:
            stage["time"] *= 2
        for term in twice["time"]:
            twice["time"][term] *= 2
        twice["cost"] *= 2
        twice["lower_bound"] *= 2
        verify = ("verify", "--plan", self.write("twice.json", twice), "--model", MODEL, "--no-run")
        self.assertIn("time", json.loads(run(*verify, "--json").stdout)["claims"])
        self.refused(run(*verify, "--cluster", CLUSTER), "twice.json", "stage 0: its time is")
        plan["layers"][0]["operators"] += 1
        self.refused(run("verify", "--plan", self.write("broken.json", plan), "--model", MODEL, "--no-run"), "broken.json", "operators, expected those of the model")

    def planned(self, *arguments):
        """The plan's path, and what `heddle plan --json` prints of it, after the plan was verified and priced."""
        out = self.path / "planned.json"
        model = () if "--model" in arguments else ("--model", MODEL)
        result = run("plan", *model, *arguments, "--out", out, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        summary = json.loads(result.stdout)
        self.assertLessEqual(summary["lower_bound"], summary["cost"])
        self.assertGreater(summary["lower_bound"], 0)
        cluster = arguments[arguments.index("--cluster") + 1]
        verified = run("verify", "--plan", out, *(model or arguments[:2]), "--cluster", cluster, "--shrink", "--json")
        self.assertEqual((verified.returncode, verified.stderr), (0, ""), verified)
        shown = json.loads(verified.stdout)
        self.assertTrue(shown["priced"])
        self.assertLess(shown["max_relative_error"], 1e-10)
        return out, summary

    def test_verify_tells_what_is_not_so(self):
        cluster = "examples/clusters/v100x2_p100x6.json"
        out, summary = self.planned("--cluster", cluster)
        found = json.loads(out.read_text())

        def verified(change, *options):
            plan = json.loads(out.read_text())
            change(plan)
            return run("verify", "--plan", self.write("changed.json", plan), "--model", MODEL, "--no-run", *options)

        def twice(plan):
            for field in ("cost", "lower_bound", "global_lower_bound"):
                if field in plan:
                    plan[field] *= 2
            plan["time"] = {term: 2 * seconds for term, seconds in plan["time"].items()}
            for point in plan["trajectory"]:
                point["cost"] = point["cost"] and 2 * point["cost"]

        def less_memory(plan):
            for terms in plan["memory"]:
                terms["activations"] /= 2
            plan["memory_bytes"] = [sum(terms.values()) for terms in plan["memory"]]

        def is_small(plan):
            plan["memory_limit_bytes"] = [1] * len(plan["memory_limit_bytes"])

        def other_shares(plan):
            for cut in plan["cuts"]:
                cut["counts"].reverse()

        for change, problem in ((less_memory, "memory for activations is"), (is_small, "its limit is 1 bytes"), (other_shares, "device 0: its memory"),
                                (lambda plan: plan["ratios"].reverse(), "not what the ratios give")):
            self.refused(verified(change), "changed.json", problem)
            self.refused(run("cost", "--plan", self.path / "changed.json", "--cluster", cluster), "changed.json", problem)
        on = ("--cluster", cluster)
        self.assertEqual(verified(twice).returncode, 0)
        self.refused(verified(twice, *on), "changed.json", "the time of computation is")
        self.refused(verified(lambda plan: plan["devices"].reverse(), *on), "device 0 is 'P100', the cluster's is 'V100'")
        without, priced = (json.loads(verified(lambda plan: None, "--json", *options).stdout) for options in ((), on))
        self.assertEqual((without["priced"], priced["priced"]), (False, True))
        self.assertLess(set(priced["claims"]), set(without["claims"]))
        self.assertIn("lower_bound", priced["claims"])
        self.assertLess(set(priced["claims"]), set(found))  # each is a field
        self.assertIn("claims of its planner: status, lower_bound, ", verified(lambda plan: None, *on).stdout)

    def test_plans_in_segments(self):
        mixed = ("--cluster", "examples/clusters/v100x2_p100x6.json")
        best = self.planned(*mixed)[1]["cost"]
        for count in ("layers", "2", "20", "38"):
            out, summary = self.planned(*mixed, "--segments", count)
            self.assertLessEqual(summary["cost"], best)
            priced = json.loads(run("cost", "--plan", out, "--cluster", mixed[1], "--json").stdout)
            self.assertAlmostEqual(priced["cost"], summary["cost"], delta=1e-12)
        self.refused(run("plan", "--model", MODEL, *mixed, "--segments", "1000"), "segments: 1000")
        # Where convolutions and classifier have ratios of their own.
        vgg = ("--model", "examples/models/vgg19.json.gz", *mixed)
        one = self.planned(*vgg)[1]["cost"]
        out, summary = self.planned(*vgg, "--segments", "layers")
        self.assertLess(summary["cost"], one)
        self.assertGreater(len(json.loads(out.read_text())["ratios"]), 1)
        self.assertEqual(run("cost", "--plan", out, *mixed).returncode, 0)

    def test_pinned_tensors(self):
        best = self.planned("--cluster", CLUSTER)[1]
        weight = "layers.1.attention.out_proj.weight"
        for pin, held in ((weight + "=shard(0)", "shard(0)"), (weight + "=shard(1)", "shard(1)"), ("layers.0.attention.in_proj_weight=shard(0.1)", "shard(1)")):
            out, summary = self.planned("--cluster", CLUSTER, "--pin", pin)
            self.assertGreaterEqual(summary["cost"], best["cost"] * (1 - 1e-9))
            plan = json.loads(out.read_text())
            number = [t["name"] for t in plan["tensors"]].index(pin.split("=")[0])
            self.assertEqual([s["to"] for s in plan["steps"] if s["do"] == "read" and s["tensor"] == number], [held])
            if held == "shard(0)":  # gathered for its use, as in the fully sharded baseline, and for that alone
                self.assertLessEqual(summary["cost"], summary["baselines"]["fully sharded"] * (1 + 1e-9))
        pinned = ("plan", "--model", MODEL, "--cluster", CLUSTER, "--pin")
        self.refused(run(*pinned, weight + "=shard(0.7)"), "dimension 0 of the tensor has")
        self.refused(run(*pinned, weight + "=shard()"), "expected numbers")
        self.refused(run(*pinned, "none=partial"), "no tensor 'none'")
        excluded = run(*pinned, weight + "=shard(0)", "--pin", weight + "=shard(1)", "--json")
        self.assertEqual(excluded.returncode, 3)
        self.assertEqual(json.loads(excluded.stdout)["reason"], "no program keeps what is pinned")

    def test_a_class_token_in_micro_batches(self):
        out = self.path / "turns.json"
        planned = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", "--labels-per-cut", "2", "--out", out, "--json")
        self.assertEqual((planned.returncode, planned.stderr), (0, ""))
        verified = run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json")
        self.assertEqual((verified.returncode, verified.stderr), (0, ""), verified)
        self.assertTrue(json.loads(verified.stdout)["executed"])

    def test_plans_of_a_changed_model(self):
        out, summary = self.planned("--cluster", CLUSTER, "--batch", 64, "--optimizer", "sgd", "--gradient-overlap")
        self.assertEqual(json.loads(out.read_text())["provenance"]["batch"], 64)
        self.planned("--cluster", "examples/clusters/v100x4_nvlink.json", "--dtype", "float16", "--optimizer-bytes", "12")
        for option, value in (("--optimizer-bytes", "nan"), ("--turn", "nan")):
            self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", option, value).returncode, 2)
        for option in (("--segments", "2"), ("--gradient-overlap",), ("--group-machines",)):
            self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", *option).returncode, 2)

    def test_verify_runs_the_plan(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        for options in ((), ("--seed", "7")):
            verified = run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json", *options)
            self.assertEqual((verified.returncode, verified.stderr), (0, ""))
            result = json.loads(verified.stdout)
            self.assertEqual((result["valid"], result["executed"], result["shrunk"], result["ranks"]), (True, True, True, 4))
            self.assertLess(result["max_relative_error"], 1e-10)
            self.assertAlmostEqual(result["loss"], result["single_device_loss"], delta=1e-9 * result["loss"])
            carried = 0
            for collective in result["collectives"].values():
                parts = sum(collective[part] for part in ("forward_bytes", "backward_bytes", "gradient_bytes"))
                self.assertAlmostEqual(collective["charged_bytes"], parts)
                self.assertAlmostEqual(collective["executed_bytes"], parts, delta=1e-6)
                carried += parts
            self.assertGreater(carried, 0)
        text = run("verify", "--plan", out, "--model", MODEL, "--shrink")
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        for fragment in ("valid: ", "on 4 ranks", "largest relative error", "bytes executed"):
            self.assertIn(fragment, text.stdout)
        self.refused(run("verify", "--plan", out, "--model", MODEL, "--json"), "vit_2", "GB", "--shrink")

    def test_machines_as_devices(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"] = [{"type": "P100", "devices": 2, "count": 3}]
        cluster["links"]["intra"] = {"bandwidth": 12e9, "latency": 1e-5}
        apart = self.write("cluster.json", cluster)
        cluster["machines"][0]["grouped"] = True
        grouped = self.write("grouped.json", cluster)
        out = self.path / "plan.json"
        planned = run("plan", "--model", MODEL, "--cluster", apart, "--group-machines", "--out", out, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        summary = json.loads(planned.stdout)
        self.assertEqual(summary["group_sizes"], [2, 2, 2])
        said = json.loads(run("plan", "--model", MODEL, "--cluster", grouped, "--json").stdout)
        self.assertEqual(said["cost"], summary["cost"])
        self.assertIn("2 x P100", run("plan", "--model", MODEL, "--cluster", grouped, "--no-times").stdout)

        shown = json.loads(run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json", "--cluster", apart, "--group-machines").stdout)
        self.assertTrue(shown["valid"])
        self.assertTrue(shown["priced"])
        self.assertEqual(shown["ranks"], 6)
        self.assertTrue(any(c["executed_bytes"] > 0 for c in shown["collectives_inside_groups"].values()))
        for c in shown["collectives_inside_groups"].values():
            self.assertEqual(c["executed_bytes"], c["charged_bytes"])

        again = json.loads(run("cost", "--plan", out, "--cluster", apart, "--group-machines", "--json").stdout)
        self.assertAlmostEqual(again["cost"], summary["cost"], delta=1e-12)
        self.refused(run("cost", "--plan", out, "--cluster", apart), "has 6 devices, the plan is for 3")
        cluster["machines"][0]["grouped"] = False
        cluster["collectives"] = {"all_reduce": {"latency": 1e-4, "seconds_per_byte": 1e-9}}
        self.refused(run("plan", "--model", MODEL, "--cluster", self.write("measured.json", cluster), "--group-machines"), "measured on all devices")

    def test_verify_runs_a_small_model_whole(self):
        model, out = json.loads(pathlib.Path("examples/formats/model.json").read_text()), self.path / "plan.json"
        known = self.write("model.json", model)
        self.assertEqual(run("plan", "--model", known, "--cluster", CLUSTER, "--out", out).returncode, 0)
        result = run("verify", "--plan", out, "--model", known, "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["shrunk"]), (0, False))
        model["rules"]["my.scale"] = "(b d), (d) -> (b d)"  # linear in nothing: no sum of products
        unknown = self.write("unknown.json", model)
        self.assertEqual(run("plan", "--model", unknown, "--cluster", CLUSTER, "--out", out).returncode, 0)
        self.refused(run("verify", "--plan", out, "--model", unknown), "unknown.json", "my_scale", "no kernel")
        self.assertEqual(run("verify", "--plan", out, "--model", unknown, "--no-run").returncode, 0)

    def test_too_few_threads(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"][0]["count"] = 300
        cluster, out = self.write("many.json", cluster), self.path / "plan.json"
        model = "examples/formats/model.json"
        self.assertEqual(run("plan", "--model", model, "--cluster", cluster, "--out", out).returncode, 0)
        self.assertEqual(run("verify", "--plan", out, "--model", model).returncode, 0)

        def one_gigabyte():  # no room for the stacks of 300 threads
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        self.refused(run("verify", "--plan", out, "--model", model, preexec_fn=one_gigabyte), "unavailable")

    def test_micro_batches_in_turn(self):
        model, out, trace = "examples/models/bert_moe_2.json.gz", self.path / "plan.json", self.path / "trace.json"
        planned = run("plan", "--planner", "hidup", "--model", model, "--cluster", CLUSTER, "--out", out, "--trace", trace, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertEqual(run("verify", "--plan", out, "--model", model, "--no-run").returncode, 0)
        self.assertEqual(run("cost", "--plan", out, "--cluster", CLUSTER).returncode, 0)
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])
        self.refused(run("plan", "--planner", "hidup", "--model", model, "--cluster", CLUSTER, "--micro-batches", 7), "7")
        slow = run("plan", "--planner", "hidup", "--model", model, "--cluster", CLUSTER, "--turn", 0.01, "--labels-per-cut", 2, "--cuts", 4, "--trace", trace, "--json")
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in events) / 1e6, json.loads(slow.stdout)["cost"], delta=1e-6)
        same = run("plan", "--planner", "hidup", "--model", model, "--cluster", CLUSTER, "--out", out, "--trace", out)
        self.assertEqual((same.returncode, same.stdout), (2, ""))
        usage = run("plan", "--model", model, "--cluster", CLUSTER, "--micro-batches", 2)
        self.assertEqual((usage.returncode, usage.stdout), (2, ""))

    def test_a_broken_plan_is_refuted(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        plan = json.loads(out.read_text())
        del plan["steps"][len(plan["steps"]) // 2]
        refuted = run("verify", "--plan", self.write("broken.json", plan), "--model", MODEL)
        self.assertEqual(refuted.returncode, 1)
        self.assertEqual(len(refuted.stderr.splitlines()), 1)
        other = run("verify", "--plan", out, "--model", "examples/models/vgg19.json.gz")
        self.assertEqual(other.returncode, 1)
        self.assertIn("another number of tensors", other.stderr)

    def test_infeasible(self):
        out = self.path / "plan.json"
        result = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--memory-limit", "1e8", "--out", out, "--json")
        self.assertEqual(result.returncode, 3)
        summary = json.loads(result.stdout)
        self.assertEqual((summary["status"], summary["cost"]), ("infeasible", None))
        self.assertIn("would need", summary["reason"])
        self.assertFalse(out.exists())
        for method in ("recover", "exact", "both"):
            result = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "ditto", "--memory-limit", "1e6", "--method", method, "--out", out, "--json")
            self.assertEqual((result.returncode, result.stderr, json.loads(result.stdout)["status"]), (3, "", "infeasible"))
            self.assertFalse(out.exists())

    def test_more_machines_than_layers(self):
        model = ("--model", "examples/models/bert_12.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json", "--planner", "ditto")
        summary, plan = self.pipeline(*model)
        self.check_pipeline(summary, plan, 4, 32)
        self.assertRegex(summary["warnings"][0], "^[4-7] machines are left out$")
        started = time.monotonic()
        limited, _ = self.pipeline(*model, "--layers", "names", "--split", "free", "--time-limit", 1)
        self.assertLess(time.monotonic() - started, 6)  # ten sizes of micro-batch divide the batch

    def test_bad_input_leaves_no_output(self):
        out = self.path / "plan.json"
        out.write_text("as it was")
        model = json.loads(gzip.open(MODEL).read())
        model["nodes"][4]["out"]["shape"][1] = -3
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["device_types"][0]["memory"] = "much"
        cases = (
            (("--model", self.path / "absent.json", "--cluster", CLUSTER), ("absent.json",)),
            (("--model", self.write("empty.json", ""), "--cluster", CLUSTER), ("empty.json",)),
            (("--model", self.write("model.json", model), "--cluster", CLUSTER), ("model.json", "nodes[4].out.shape[1]", "-3", "expected")),
            (("--model", MODEL, "--cluster", self.write("cluster.json", cluster)), ("cluster.json", "device_types[0].memory", "expected")),
            (("--model", MODEL, "--cluster", self.write("new.json", {"format": "heddle.cluster", "version": 99})), ("new.json", "heddle.cluster", "99")),
        )
        for arguments, fragments in cases:
            with self.subTest(fragments=fragments):
                self.refused(run("plan", *arguments, "--out", out), *fragments)
                self.assertEqual(out.read_text(), "as it was")
        self.assertEqual([p.name for p in self.path.iterdir() if p.name.startswith(("plan", "."))], ["plan.json"])

    def compressed(self, name, *parts):
        """A gzip file of texts, each so many times."""
        with gzip.open(self.path / name, "wb", 1) as file:
            for text, count in parts:
                block = text * max(1, (1 << 20) // len(text))
                for _ in range(len(text) * count // len(block)):
                    file.write(block)
                file.write(text * (count - len(block) // len(text) * (len(text) * count // len(block))))
        return self.path / name

    def test_files_that_would_take_all_memory(self):
        def one_gigabyte():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        end = (b'0],"nodes":[]}', 1)
        for path, *fragments in (
                (self.compressed("arrays.gz", (b'{"meta":[', 1), (b"[],", 15_000_000), end), "values", "bytes in memory, expected fewer"),
                (self.compressed("objects.gz", (b'{"meta":[', 1), (b'{"":0},', 7_000_000), end), "values", "bytes in memory, expected fewer"),
                (self.compressed("text.gz", (b'{"meta":"', 1), (b"x", 50_000_000), (b'","nodes":[]}', 1)), "line 1, column 9", "is longer than 1048576 bytes"),
                (self.compressed("bomb.gz", (b'{"meta":"', 1), (b"x", 300_000_000)), "holds more than 268435456 bytes, expected a smaller file"),
                (self.compressed("values.gz", (b'{"nodes":[{"id":0,"name":"a","op":"call_method","target":"x","inputs":[],"out":{"kind":"tuple","items":[', 1),
                                               (b'{"kind":"value","value":[%s0]},' % (b"0," * 4000), 2_400), (b'{"kind":"value","value":0}]}},0]}', 1)), "bytes in memory, expected less")):
            with self.subTest(path=path.name):
                self.refused(run("model", path, preexec_fn=one_gigabyte), path.name, *fragments)
        # A model of some size is far from all limits.
        model = json.loads(gzip.open(MODEL).read())
        model["meta"]["notes"] = ["some text"] * 500_000
        self.assertEqual(run("model", self.write("large.json", model), preexec_fn=one_gigabyte).returncode, 0)

    def test_names_fit_for_a_terminal(self):
        model = json.loads(gzip.open(MODEL).read())
        model["meta"]["model"] = "red \x1b[31m" + "m" * 100_000
        for number, node in enumerate(model["nodes"][:-1]):
            node["name"] += "\x1b[2J\x9b\u202e" + ("n" * 100_000 if number % 40 == 5 else "")
            if node["op"] == "parameter":
                node["target"] += "\x1b]0;x\x07"
            elif node["target"] == "torch.nn.functional.gelu":
                node["target"] = "mine\x1b[5m" + "g" * 100_000
        path, out = self.write("model.json", model), self.path / "plan.json"
        for command in (("model", path), ("plan", "--model", path, "--cluster", CLUSTER, "--out", out), ("cost", "--plan", out, "--cluster", CLUSTER),
                        ("verify", "--plan", out, "--model", path, "--shrink"), ("plan", "--model", path, "--cluster", CLUSTER, "--planner", "amp", "--layers", "names"),
                        ("plan", "--model", path, "--cluster", CLUSTER, "--pin", "x\x1b[31m=partial"), ("model", self.path / "absent\x1b[31m"), ("model", "--\x1b[31m")):
            with self.subTest(command=command[0]):
                result = run(*command)
                said = result.stdout + result.stderr
                for control in ("\x1b", "\x07", "\x9b", "\u202e"):
                    self.assertNotIn(control, said)
                self.assertLess(max(map(len, said.splitlines())), 1500)

    def test_names_in_other_encodings(self):
        place = str(self.path).encode() + b"/\xff\xfe.json.gz"
        with open(place, "wb") as file:
            file.write(pathlib.Path(MODEL).read_bytes())
        for command in ((b"model", place), (b"plan", b"--model", place, b"--cluster", CLUSTER.encode())):
            model = json.loads(gzip.open(MODEL).read())
            for options in ((), (b"--json",)):
                result = subprocess.run([HEDDLE, *command, *options], capture_output=True, timeout=120)
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                result.stdout.decode()
        del model["meta"]
        with gzip.open(place, "wb") as file:
            file.write(json.dumps(model).encode())
        result = subprocess.run([HEDDLE, b"model", place, b"--json"], capture_output=True, timeout=120)
        self.assertEqual(json.loads(result.stdout)["model"], "??")
        absent = subprocess.run([HEDDLE, b"model", place + b"\xff"], capture_output=True, timeout=120)
        self.assertEqual(absent.returncode, 1)
        self.assertIn("?: cannot be read", absent.stderr.decode())

    def test_messages_name_file_place_and_expectation(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["device_types"][0]["rates"]["float32"] = 1e-320
        tiny = self.write("tiny.json", cluster)
        cluster["device_types"][0]["rates"] = {"float16": 1e12}
        half = self.write("half.json", cluster)
        for planner in ("hap", "hidup", "amp", "ditto"):
            with self.subTest(planner=planner):
                self.refused(run("plan", "--model", MODEL, "--cluster", tiny, "--planner", planner), "tiny.json: device_types[0].rates.float32: is 1e-320, expected a rate of at least 1e-09")
                self.refused(run("plan", "--model", MODEL, "--cluster", half, "--planner", planner), MODEL, "half.json", "device type 'P100', rates: has none for float32", "expected one")
        for planner in ("amp", "ditto", "hidup"):
            with self.subTest(planner=planner):
                self.refused(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", planner, "--batch", 1), MODEL, "batch", "no input has", "two or more samples", "expected")
        grouped = json.loads(pathlib.Path(CLUSTER).read_text())
        grouped["machines"] = [{"type": "P100", "devices": 2, "count": 2, "grouped": True}]
        grouped["links"]["intra"] = grouped["links"]["inter"]
        grouped, hidup = self.write("grouped.json", grouped), ("plan", "--planner", "hidup", "--model", MODEL, "--cluster")
        self.refused(run(*hidup, grouped), MODEL, "grouped.json", "device groups", "expected single devices")
        self.refused(run(*hidup, CLUSTER, "--micro-batches", 7), MODEL, CLUSTER, "micro-batches: 7, expected two or more that divide the batch of")
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        self.refused(run("cost", "--plan", out, "--cluster", "examples/clusters/v100x2_p100x6.json"), "plan.json", "v100x2_p100x6.json", "has 8 devices, the plan is for 4, expected as many")
        model = json.loads(pathlib.Path("examples/formats/model.json").read_text())
        model["rules"]["my.scale"] = "(b d)\0, (d) -> (b d)"
        self.refused(run("model", self.write("nul.json", model)), "nul.json: rules['my.scale']: index rule '(b d)?, (d) -> (b d)', character 6: expected '->'")

    def test_unwritable_output(self):
        for option in ("--out", "--trace"):
            for place in (self.path / "no" / "plan.json", self.path):
                start = time.monotonic()
                self.refused(run("plan", "--model", "examples/models/gpt2_12.json.gz", "--cluster", CLUSTER, option, place), str(place), "cannot be written")
                self.assertLess(time.monotonic() - start, 2)  # planning takes longer
        self.assertEqual(list(self.path.iterdir()), [])

    def test_search(self):
        found = run("search", "--theory", "examples/formats/theory.json", "--json")
        result = json.loads(found.stdout)
        self.assertEqual((found.returncode, result["status"]), (0, "optimal"))
        self.assertAlmostEqual(result["cost"], 1.49e-4, delta=1e-13)
        task = json.loads(pathlib.Path("examples/formats/theory.json").read_text())
        task["initial"] = []
        lost = run("search", "--theory", self.write("lost.json", task), "--json")
        self.assertEqual((lost.returncode, json.loads(lost.stdout)["status"]), (3, "infeasible"))
        stopped = run("search", "--theory", "examples/formats/theory.json", "--label-limit", 1, "--json")
        self.assertEqual((stopped.returncode, json.loads(stopped.stdout)["which_limit"]), (4, "labels"))
        task["triples"][0]["cost"] = -1
        self.refused(run("search", "--theory", self.write("negative.json", task)), "negative.json", "triples[0].cost")

    def test_fit(self):
        samples, out = "examples/formats/samples.csv", self.path / "fitted.json"
        fitted = run("fit", "--samples", samples, "--out", out, "--json")
        self.assertEqual((fitted.returncode, fitted.stderr), (0, ""))
        report = json.loads(fitted.stdout)
        self.assertEqual([c["collective"] for c in report["collectives"]], ["all_reduce", "all_gather"])
        self.assertIsNone(report["collectives"][0]["held_out"])
        self.assertLess(report["collectives"][1]["held_out"]["worst"], 0.05)
        self.assertEqual(len(report["operators"]), 3)
        self.assertEqual(len(report["warnings"]), 3)
        written = json.loads(out.read_text())
        self.assertEqual((written["format"], written["ranks"]), ("heddle.fitted", 2))
        self.assertEqual(written["collectives"]["all_gather"], report["collectives"][1]["model"])

    def test_fit_into_a_cluster(self):
        rows = ["what,device,ranks,dtype,flops,bytes,seconds"]
        rows += [f"all_reduce,,4,,,{n},{1e-4 + 2e-9 * n}" for n in (1e4, 1e6, 1e8)]
        rows += [f"all_reduce,,2,,,{n},{1e-4 + 1e-9 * n}" for n in (1e4, 1e6, 1e8)]
        rows += [f"matmul,P100,,float32,{w},{w / 100},{2e-5 + w / 7e12}" for w in (1e8, 1e9, 1e10)]
        rows += ["matmul,abacus,,float32,10,10,1"]
        samples, out = self.write("s.csv", "\n".join(rows)), self.path / "cluster.json"
        fitted = run("fit", "--samples", samples, "--cluster", CLUSTER, "--out", out)
        self.assertEqual(fitted.returncode, 0, fitted.stderr)
        self.assertIn("the cluster has no device type 'abacus'", fitted.stderr)
        # At a hundred flops per byte the cluster's bandwidth of 600 GB/s would bind at 10 TFLOP/s: it does not.
        self.assertNotIn("off by up to", fitted.stderr)
        cluster = json.loads(out.read_text())
        self.assertAlmostEqual(cluster["collectives"]["all_reduce"]["seconds_per_byte"], 2e-9, delta=1e-16)
        rates = cluster["device_types"][0]["rates"]["float32"]
        self.assertEqual(rates["default"], 8e12)
        self.assertAlmostEqual(rates["matmul"]["rate"], 7e12, delta=1e4)
        self.assertAlmostEqual(rates["matmul"]["overhead"], 2e-5, delta=1e-13)
        planned = run("plan", "--model", MODEL, "--cluster", out, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)

        slow = json.loads(pathlib.Path(CLUSTER).read_text())
        slow["device_types"][0]["bandwidth"] = 35e9
        self.assertIn("matmul on P100, float32: off by up to 9", run("fit", "--samples", samples, "--cluster", self.write("slow.json", slow)).stderr)
        self.refused(run("fit", "--samples", samples, "--out", self.path / "f.json"), "s.csv", "2 and on 4 ranks", "--ranks")
        self.refused(run("fit", "--samples", samples, "--ranks", 3), "s.csv", "no collective on 3 ranks")
        chosen = run("fit", "--samples", samples, "--ranks", 2, "--out", self.path / "f.json")
        self.assertEqual(chosen.returncode, 0)
        self.assertEqual(json.loads((self.path / "f.json").read_text())["ranks"], 2)

    def into_full_device(self, *arguments):
        """Whatever the command, it fails and says so, after its warnings."""
        with open("/dev/full", "w") as full:
            result = subprocess.run([HEDDLE, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        errors = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
        self.assertEqual((result.returncode, errors), (1, ["heddle: standard output cannot be written"]), arguments)

    def test_output_that_is_lost(self):
        plan, pipeline, inputs = self.path / "plan.json", self.path / "pipeline.json", ("--model", MODEL, "--cluster", CLUSTER)
        self.assertEqual(run("plan", *inputs, "--out", plan).returncode, 0)
        self.assertEqual(run("plan", *inputs, "--planner", "amp", "--out", pipeline).returncode, 0)
        for kind in (("--json",), ()):
            for command in (("verify", "--plan", plan, "--model", MODEL, "--no-run"), ("verify", "--plan", pipeline, "--model", MODEL, "--no-run"), ("cost", "--plan", plan, "--cluster", CLUSTER),
                            ("model", MODEL), ("search", "--theory", "examples/formats/theory.json"), ("fit", "--samples", "examples/formats/samples.csv")):
                self.into_full_device(*command, *kind)
        for command in (("--help",), ("--version",), ("help",), ("help", "plan"), ("plan", "--help")):
            self.into_full_device(*command)

    def test_a_failing_run_leaves_no_files(self):
        inputs = ("--model", MODEL, "--cluster", CLUSTER)
        plan, trace = self.path / "plan.json", self.path / "trace.json"
        for planner in ("hap", "hidup", "amp", "ditto"):
            self.into_full_device("plan", *inputs, "--planner", planner, "--out", plan, *(("--labels-per-cut", 1) if planner == "hidup" else ()))
        self.into_full_device("plan", *inputs, "--out", plan, "--trace", trace, "--json")
        self.into_full_device("plan", "--planner", "amp", "--profile", self.example("docs/reference/layer_profiles.md"), "--out", plan)
        self.into_full_device("fit", "--samples", "examples/formats/samples.csv", "--out", plan)
        (self.path / "layer_profiles.json").unlink()
        self.refused(run("plan", *inputs, "--out", plan, "--trace", "/dev/full"), "/dev/full: cannot be written")
        self.assertEqual(list(self.path.iterdir()), [])
        plan.write_text("as it was")
        self.into_full_device("plan", *inputs, "--out", plan)
        self.refused(run("plan", *inputs, "--out", plan, "--trace", "/dev/full"), "/dev/full")
        self.assertEqual((plan.read_text(), len(list(self.path.iterdir()))), ("as it was", 1))

    def test_a_reader_that_leaves_early(self):
        out = self.path / "plan.json"
        process = subprocess.Popen([HEDDLE, "plan", "--model", MODEL, "--cluster", CLUSTER, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait(120)), (b"", 0))
        process.stderr.close()
        self.assertEqual(json.loads(out.read_text())["format"], "heddle.plan")

    def test_bad_samples_leave_no_output(self):
        out = self.path / "fitted.json"
        header = "what,device,ranks,dtype,flops,bytes,seconds\n"
        for content, fragments in (("", ("bad.csv", "is empty")), (header, ("bad.csv", "no sample")),
                                   (header + "all_reduce,,2,,,1,1\nall_reduce,,2,,,1,nan\n", ("bad.csv", "line 3", "seconds", "nan")),
                                   (header + "all_reduce,,2,,,-1,1\n", ("line 2", "bytes"))):
            with self.subTest(fragments=fragments):
                self.refused(run("fit", "--samples", self.write("bad.csv", content), "--out", out, "--json"), *fragments)
        self.refused(run("fit", "--samples", "examples/formats/samples.csv", "--cluster", self.path / "absent.json", "--out", out), "absent.json")
        self.assertFalse(out.exists())

    def test_search_for_several(self):
        found = run("search", "--theory", "examples/formats/theory.json", "--solutions", 2, "--json")
        result = json.loads(found.stdout)
        self.assertEqual((found.returncode, found.stderr, result["status"]), (0, "", "optimal"))
        self.assertEqual(result["program"], [0, 2, 3])
        self.assertEqual(result["steps"], 3)
        self.assertEqual([other["program"] for other in result["runners_up"]], [[1]])
        self.assertAlmostEqual(result["runners_up"][0]["cost"], 2.8e-4, delta=1e-13)
        self.assertLessEqual(result["lower_bound"], result["cost"])
        self.assertEqual(set(result["seconds_of"]), {"bound", "successors", "insertion"})
        self.assertLessEqual(result["seconds_of"]["bound"], result["seconds"])
        one = json.loads(run("search", "--theory", "examples/formats/theory.json", "--json").stdout)
        self.assertNotIn("runners_up", one)
        table = run("search", "--theory", "examples/formats/theory.json", "--solutions", 2).stdout
        self.assertIn("next, cost 0.00028 in 1 steps", table)

        task = json.loads(pathlib.Path("examples/formats/theory.json").read_text())
        task["initial"] = [1]
        lost = run("search", "--theory", self.write("lost.json", task), "--solutions", 2, "--json")
        result = json.loads(lost.stdout)
        self.assertEqual((lost.returncode, result["status"], result["cost"], result["lower_bound"]), (3, "infeasible", None, None))
        self.assertEqual((result["program"], result["runners_up"]), ([], []))
        self.assertIn("reason", result)
        stopped = run("search", "--theory", "examples/formats/theory.json", "--memory-limit", 1, "--json")
        self.assertEqual((stopped.returncode, json.loads(stopped.stdout)["which_limit"]), (4, "memory"))

    def test_model(self):
        summary = json.loads(run("model", MODEL, "--json").stdout)
        nodes = json.loads(gzip.open(MODEL).read())["nodes"]
        parameters = [node for node in nodes if node["op"] == "parameter"]
        elements = 0
        for node in parameters:
            size = 1
            for extent in node["out"]["shape"]:
                size *= extent
            elements += size
        self.assertEqual(summary["trained_parameters"], {"tensors": len(parameters), "elements": elements, "bytes": 4 * elements})
        self.assertEqual(summary["frozen_parameters"]["tensors"], 0)
        self.assertEqual(sum(kind["count"] for kind in summary["kinds"]), summary["operators"])
        self.assertAlmostEqual(sum(kind["forward_flops"] for kind in summary["kinds"]), summary["forward_flops"], delta=1)
        self.assertEqual([(r["count"], r["first"], r["last"]) for r in summary["repeats"]], [(2, "layers.0", "layers.1")])
        self.assertIn(12, [c["atoms"] for c in summary["atoms"]])  # heads
        self.assertGreater(summary["activation_bytes"], 0)
        self.assertEqual((summary["without_rule"], summary["warnings"]), ([], []))

        model = json.loads(gzip.open(MODEL).read())
        renamed = [node for node in model["nodes"] if node["target"] == "torch.nn.functional.gelu"]
        for node in renamed:
            node["target"] = "mine.gelu"
        path = self.write("model.json", model)
        self.assertEqual(json.loads(run("model", path, "--json").stdout)["without_rule"], [{"target": "mine.gelu", "calls": len(renamed)}])
        text = run("model", path)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        for fragment in ("Operators (Gflop)", "trained parameters", "Repeated blocks", "Atoms", f"{len(renamed)} x mine.gelu", "in the file's 'rules': {\"mine.gelu\": "):
            self.assertIn(fragment, text.stdout)
        self.refused(run("model", self.path / "absent.json"), "absent.json")

    def test_usage(self):
        for arguments in ((), ("plan",), ("plan", "--model", MODEL), ("fly",), ("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "magic"),
                          ("search", "--theory", "x", "--time-limit", "-1"), ("search", "--theory", "x", "--solutions", "0"), ("search", "--theory", "x", "--time-limit", "nan"),
                          ("search", "--theory", "x", "--memory-limit", "nan"), ("search", "--theory", "x", "--solutions", "99999999999999999999"),
                          ("verify", "--plan", "p", "--model", "m", "--shrink", "--no-run"), ("fit",), ("model",), ("fit", "--samples", "x", "--ranks", "0")):
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertTrue(result.stderr.startswith("heddle: "))
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertEqual(run("--help").returncode, 0)
        self.assertIn("0.1.0", run("--version").stdout)

    def test_help(self):
        self.assertEqual(run("help").stdout, run("--help").stdout)
        for command in ("plan", "verify", "cost", "search", "fit", "model", "help"):
            helped = run("help", command)
            self.assertEqual((helped.returncode, helped.stderr, helped.stdout), (0, "", run(command, "--help").stdout))
            self.assertIn(f"heddle {command}", helped.stdout)
            self.assertIn(f"\n  {command} ", run("help").stdout)
        raw = run("help", "plan", "--\x1b[31mred")
        self.assertEqual(raw.returncode, 2)
        self.assertNotIn("\x1b", raw.stderr)

    def test_what_was_meant(self):
        inputs = ("--model", MODEL, "--cluster", CLUSTER)
        for arguments, sentence in ((("plna", *inputs), "there is no command 'plna'; did you mean plan?"), (("verfiy",), "did you mean verify?"), (("Plan",), "did you mean plan?"),
                                    (("help", "serch"), "did you mean search?"), (("plan", "--modle", MODEL, "--cluster", CLUSTER), "plan has no option --modle; did you mean --model?"),
                                    (("plan", *inputs, "--timelimit=2"), "plan has no option --timelimit; did you mean --time-limit?"),
                                    (("plan", *inputs, "--gradient_overlap"), "did you mean --gradient-overlap?"), (("plan", *inputs, "--grad"), "did you mean --gradient-overlap?"),
                                    (("verify", "--plna", "p"), "verify has no option --plna; did you mean --plan?"), (("fit", "--sampels", "s"), "did you mean --samples?"),
                                    (("model", MODEL, "--jsn"), "did you mean --json?"), (("--verson",), "heddle has no option --verson; did you mean --version?"),
                                    (("search", "--theroy", "t"), "did you mean --theory?"), (("cost", "--plan", "p", "--clutser", "c"), "did you mean --cluster?")):
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual((result.returncode, result.stdout, len(result.stderr.splitlines())), (2, "", 1))
                self.assertIn(sentence, result.stderr)
        for arguments in (("fly",), ("plan", *inputs, "--quantum"), ("plan", *inputs, "--\x1b[31mred"), ()):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stdout, len(result.stderr.splitlines())), (2, "", 1))
            self.assertNotIn("did you mean", result.stderr)
            self.assertNotIn("\x1b", result.stderr)
        self.assertIn("has no use for 'm.json'", run("plan", *inputs, "m.json").stderr)

    def test_networks_of_no_use(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["links"]["inter"]["latency"] = 1e306
        table = run("plan", "--model", MODEL, "--cluster", self.write("slow.json", cluster)).stdout
        self.assertIn("DP-CP", table)
        self.assertNotIn(" inf", table)
        lost = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "amp", "--memory-limit", 1e6)
        self.assertEqual(lost.returncode, 3)
        self.assertRegex(lost.stdout, "model +vit_2, 4 layers\ncluster +p100x4, 4 devices\n")

    def test_what_status_and_gap_are_of(self):
        spaces = {"hap": "one-axis programs at these shares", "hidup": "one-axis programs of 2 micro-batches in turn at these shares",
                  "amp": "pipelines of equal tensor groups and copies in these layers", "ditto": "pipelines of one copy in these layers"}
        for planner, space in spaces.items():
            out = self.path / "plan.json"
            inputs = ("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", planner, *(("--labels-per-cut", 2) if planner == "hidup" else ()))
            summary = json.loads(run(*inputs, "--json", "--out", out).stdout)
            self.assertEqual((summary["space"], json.loads(out.read_text())["space"]), (space, space))
            self.assertNotIn("other_planners", summary)
            words = " ".join(run(*inputs).stdout.split())
            self.assertRegex(words, f"status (optimal|feasible) among {space}")
            self.assertRegex(words, f"gap [0-9.]+ % among {space}")
        pinned = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--pin", "patches.weight=replicated", "--json")
        self.assertEqual(json.loads(pinned.stdout)["space"], "one-axis programs that keep the pins at these shares")

    def test_the_other_planners(self):
        inputs = ("plan", "--model", "examples/models/vgg19.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json")
        planned = run(*inputs, "--json")
        self.assertEqual((planned.returncode, planned.stderr), (0, ""))
        summary = json.loads(planned.stdout)
        others = summary["other_planners"]
        self.assertEqual(list(others), ["amp", "ditto", "hidup"])
        for other in others.values():
            self.assertIn(other["status"], ("optimal", "feasible", "limit"))
            self.assertTrue(other["leaves_out"])
            if other["cost"] is not None:
                self.assertLessEqual(other["lower_bound"], other["cost"] * (1 + 1e-9))
                self.assertTrue(other["space"])
        alone = json.loads(run(*inputs, "--planner", "hap", "--json").stdout)
        self.assertEqual((alone["cost"], "other_planners" in alone), (summary["cost"], False))
        self.assertNotIn("other_planners", json.loads(run(*inputs, "--json", "--no-times").stdout))
        self.assertIn("\nOther planners, for as long as this one took", run(*inputs).stdout)
        self.assertNotIn("Other planners", run(*inputs, "--no-times").stdout)
        limited = json.loads(run(*inputs, "--json", "--time-limit", "1e-9").stdout)
        self.assertEqual({(o["status"], o["which_limit"], o["cost"]) for o in limited["other_planners"].values()}, {("limit", "time", None)})
        # Where hap finds nothing the others may.
        tight = run("plan", "--model", "examples/models/bert_12.json.gz", "--cluster", CLUSTER, "--json")
        summary = json.loads(tight.stdout)
        self.assertEqual((tight.returncode, summary["cost"]), (4, None))
        self.assertIsNotNone(summary["other_planners"]["amp"]["cost"])
        # What a planner refuses is said.
        grouped = json.loads(pathlib.Path("examples/clusters/v100x4_nvlink.json").read_text())
        for machine in grouped["machines"]:
            machine["grouped"] = True
        refused = json.loads(run("plan", "--model", MODEL, "--cluster", self.write("grouped.json", grouped), "--json").stdout)["other_planners"]["hidup"]
        self.assertIsNone(refused["status"])
        self.assertIn("device groups", refused["reason"])

    def pipeline(self, *arguments, status=0):
        """What `heddle plan --json` prints, and the plan it writes."""
        out = self.path / "pipeline.json"
        planned = run("plan", *arguments, "--out", out, "--json")
        self.assertEqual((planned.returncode, planned.stderr), (status, ""), planned)
        summary = json.loads(planned.stdout)
        for field in ("status", "cost", "lower_bound", "statistics", "seconds", "warnings", "baselines", "memory_bytes", "memory_limit_bytes"):
            self.assertIn(field, summary)
        return summary, json.loads(out.read_text()) if out.exists() else None

    def example(self, page):
        """The JSON document of a page."""
        text = pathlib.Path(page).read_text()
        return self.write(pathlib.Path(page).stem + ".json", text.split("```json\n")[1].split("```")[0])

    def check_pipeline(self, summary, plan, layers, devices):
        self.assertEqual(plan["format"], "heddle.pipeline_plan")
        self.assertEqual((len(plan["layers"]), len(plan["devices"])), (layers, devices))
        self.assertEqual([s["end"] for s in plan["stages"][:-1]], [s["first"] for s in plan["stages"][1:]])
        self.assertEqual(plan["stages"][-1]["end"], layers)
        self.assertAlmostEqual(sum(plan["time"].values()), summary["cost"])
        self.assertLessEqual(summary["lower_bound"], summary["cost"] * (1 + 1e-9))
        for cost in summary["baselines"].values():
            self.assertTrue(cost is None or cost >= summary["cost"] * (1 - 1e-9))
        for used, limit in zip(summary["memory_bytes"], summary["memory_limit_bytes"]):
            self.assertTrue(limit is None or used <= limit)

    def test_pipelines_of_models(self):
        model = ("--model", "examples/models/gpt2_12.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json")
        summary, plan = self.pipeline(*model, "--planner", "amp")
        self.check_pipeline(summary, plan, 14, 32)
        self.assertEqual(sum(layer["operators"] for layer in plan["layers"]), 164)
        self.assertIn("data parallel", summary["baselines"])
        forced, plan = self.pipeline(*model, "--planner", "amp", "--pipeline-degree", 4, "--tensor-degrees", "1,2", "--layers", "names", "--annealing-steps", 0)
        self.check_pipeline(forced, plan, 16, 32)
        self.assertEqual(len(plan["stages"]), 4)
        smaller, plan = self.pipeline(*model, "--planner", "amp", "--layers", 8, "--batch", 32, "--optimizer", "sgd")
        self.check_pipeline(smaller, plan, 8, 32)
        self.assertEqual(plan["global_batch"], 32)
        summary, plan = self.pipeline("--model", "examples/models/vit_12.json.gz", "--cluster", "examples/clusters/v100x2_p100x6.json", "--planner", "ditto")
        self.check_pipeline(summary, plan, 14, 8)
        fixed, plan = self.pipeline("--model", "examples/models/vit_12.json.gz", "--cluster", "examples/clusters/v100x2_p100x6.json", "--planner", "ditto", "--micro-batch", 16,
                                    "--method", "recover", "--fold-memory", "--schedule", "oobleck", "--more-slots", 1)
        self.check_pipeline(fixed, plan, 14, 8)
        self.assertEqual(plan["micro_batch_size"], 16)

    def test_pipelines_of_profiles(self):
        profile = self.example("docs/reference/layer_profiles.md")
        summary, plan = self.pipeline("--planner", "amp", "--profile", profile)
        self.check_pipeline(summary, plan, 6, 6)
        self.assertNotIn("operators", plan["layers"][0])
        self.assertIn("micro-batches of", run("plan", "--planner", "amp", "--profile", profile).stdout)
        self.assertEqual(self.pipeline("--planner", "amp", "--profile", profile, "--batch", 4)[1]["global_batch"], 4)
        lost, _ = self.pipeline("--planner", "amp", "--profile", profile, "--memory-limit", 1e6, status=3)
        self.assertEqual((lost["status"], lost["cost"]), ("infeasible", None))
        self.assertIn("exceeds memory", lost["reason"])

        templates = self.example("docs/reference/templates.md")
        summary, plan = self.pipeline("--planner", "ditto", "--profile", templates)
        self.check_pipeline(summary, plan, 4, 4)
        self.assertEqual((summary["status"], plan["layers"][0]["name"]), ("optimal", "embedding"))
        stopped, plan = self.pipeline("--planner", "ditto", "--profile", templates, "--method", "exact", "--label-limit", 1)
        self.assertEqual((stopped["status"], stopped["which_limit"]), ("limit", "labels"))
        self.check_pipeline(stopped, plan, 4, 4)
        nothing = run("plan", "--planner", "amp", "--profile", profile, "--time-limit", 1e-12, "--json")
        self.assertEqual((nothing.returncode, json.loads(nothing.stdout)["which_limit"], json.loads(nothing.stdout)["cost"]), (4, "time", None))
        copies, plan = self.pipeline("--planner", "ditto", "--profile", templates, "--most-machines", 2)
        self.check_pipeline(copies, plan, 4, 4)

    def test_bad_pipelines(self):
        profile, templates = self.example("docs/reference/layer_profiles.md"), "examples/formats/cluster.json"
        self.refused(run("plan", "--planner", "ditto", "--profile", profile), "layer_profiles.json", "format")
        self.refused(run("plan", "--planner", "amp", "--profile", self.path / "absent.json"), "absent.json")
        self.refused(run("plan", "--planner", "amp", "--profile", templates), "cluster.json", "expected heddle.layer_profile")
        self.refused(run("plan", "--planner", "amp", "--profile", profile, "--tensor-degrees", 7), "degree")
        model = ("--model", MODEL, "--cluster", CLUSTER)
        self.refused(run("plan", *model, "--planner", "amp", "--layers", "none.such"), "layers", "none.such")
        self.refused(run("plan", *model, "--planner", "amp", "--layers", "0"), "layers")
        self.refused(run("plan", *model, "--planner", "ditto", "--micro-batch", 7), "micro-batch", "divides")
        self.refused(run("plan", *model, "--planner", "ditto", "--reference", "abacus"), "--reference abacus")
        self.refused(run("plan", *model, "--planner", "amp", "--out", self.path / "no" / "p.json"), "p.json")
        for arguments in (("--planner", "amp"), ("--planner", "hap", "--profile", profile), (*model, "--planner", "amp", "--pin", "x=partial"), (*model, "--planner", "amp", "--beam", "2"),
                          (*model, "--layers", "names"), (*model, "--planner", "ditto", "--record", "2"), (*model, "--planner", "amp", "--profile", profile),
                          ("--planner", "amp", "--profile", profile, "--layers", "names"), (*model, "--planner", "ditto", "--most-machines", "2"),
                          ("--planner", "amp", "--profile", profile, "--label-limit", "5")):
            with self.subTest(arguments=arguments):
                result = run("plan", *arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def interrupted(self, *arguments, until, presses=1):
        """Presses Ctrl-C at a terminal once it shows all of `until`; returns exit status, what stdout got, and what the terminal showed."""
        leader, follower = pty.openpty()
        with tempfile.TemporaryFile() as stdout:
            process = subprocess.Popen([HEDDLE, *map(str, arguments)], stdout=stdout, stderr=follower, stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            os.close(follower)
            shown, sent, end = b"", False, time.monotonic() + 120
            try:
                while time.monotonic() < end:
                    if select.select([leader], [], [], 0.5)[0]:
                        try:
                            part = os.read(leader, 65536)
                        except OSError:  # nobody writes any more
                            break
                        if not part:
                            break
                        shown += part
                    if not sent and any(all(word in line for word in until) for line in shown.split(b"\r")):
                        sent = True
                        for _ in range(presses):
                            process.send_signal(signal.SIGINT)
                            time.sleep(0.01)  # else two may arrive as one
                status = process.wait(max(1, end - time.monotonic()))
            finally:
                process.kill()
                process.wait()
                os.close(leader)
            stdout.seek(0)
            self.assertTrue(sent, shown[-300:])
            return status, stdout.read().decode(), shown

    def test_interrupted_plans(self):
        out, model = self.path / "plan.json", "examples/models/gpt2_12.json.gz"
        inputs = ("plan", "--model", model, "--cluster", "examples/clusters/v100x8_p100x24.json", "--out", out, "--json")
        long_runs = {"hap": ((b"hap, ", b" s, best "), "--gradient-overlap"), "hidup": ((b"hidup, ", b"round 1, "), "--labels-per-cut", 1_000_000),
                     "amp": ((b"amp, annealing, ", b" s, best ", b", gap "), "--annealing-steps", 1_000_000_000)}
        for planner, (until, *options) in long_runs.items():
            with self.subTest(planner=planner):
                status, stdout, shown = self.interrupted(*inputs, "--planner", planner, *options, until=until)
                self.assertEqual(shown.split(b"\r")[-1], b"\x1b[K")  # nothing of it stays
                summary = json.loads(stdout)
                self.assertEqual((status, summary["status"], summary["which_limit"]), (0, "limit", "stopped"))
                self.assertEqual(run("verify", "--plan", out, "--model", model, "--no-run").returncode, 0)
                self.assertEqual(json.loads(out.read_text())["cost"], summary["cost"])
                out.unlink()

    def test_ended_from_outside(self):
        """Whoever ends heddle after the plan is there, and before it is delivered, finds no parts of files."""
        command = [HEDDLE, "plan", "--model", "examples/models/gpt2_12.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json", "--out", self.path / "plan.json"]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)
        self.assertTrue(process.stdout.readline())  # the other planners are asked now
        self.assertEqual(list(self.path.iterdir()), [])
        process.terminate()
        process.communicate()
        self.assertEqual([path.name for path in self.path.iterdir() if path.name != "plan.json"], [])

    def test_ten_thousand_devices(self):
        v100 = json.loads(pathlib.Path("examples/clusters/v100x4_nvlink.json").read_text())
        v100["machines"][0].update({"count": 1, "devices": 10_000})
        cluster = self.write("cluster.json", v100)
        for planner in ("hap", "hidup", "amp", "ditto"):
            command = [HEDDLE, "plan", "--model", "examples/models/bert_12.json.gz", "--cluster", cluster, "--planner", planner, "--json"]
            process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertIn(process.returncode, (0, 3), planner)
            self.assertLess(used.ru_maxrss, 200_000, planner)  # kilobytes

    def test_interrupted_templates(self):
        layers, types = 40, 11
        numbers = random.Random(1)
        profile = {"format": "heddle.templates", "version": 1, "micro_batches": 64, "layers": [{"kept": 1e6, "saved": 1e6, "input": 1e3}] * layers,
                   "device_types": [{"name": f"t{t}", "forward": [numbers.uniform(1, 3) for _ in range(layers)], "backward": [numbers.uniform(2, 6) for _ in range(layers)]} for t in range(types)],
                   "machines": [{"type": f"t{t}", "count": 2} for t in range(types)]}
        out = self.path / "plan.json"
        status, stdout, shown = self.interrupted("plan", "--planner", "ditto", "--profile", self.write("profile.json", profile), "--out", out, "--json",
                                                 until=(b"ditto, exact search", b" s, best ", b", gap "))
        summary = json.loads(stdout)
        self.assertEqual((status, summary["status"], summary["which_limit"]), (0, "limit", "stopped"))
        self.assertEqual(json.loads(out.read_text())["cost"], summary["cost"])

    def test_interrupted_search(self):
        numbers, count = random.Random(1), 60
        triples = [{"pre": [0], "add": [1 + p for p in range(count) if numbers.random() < 0.12], "cost": numbers.uniform(1, 1.01)} for _ in range(count)]
        triples.append({"pre": list(range(1, count + 1)), "add": [count + 1], "cost": 0})
        theory = self.write("theory.json", {"format": "heddle.theory", "version": 1, "properties": [f"p{p}" for p in range(count + 2)], "initial": [0], "goal": count + 1, "triples": triples})
        command = ("search", "--theory", theory, "--label-limit", 1_000_000_000, "--json")
        status, stdout, _ = self.interrupted(*command, until=(b"0000 expanded, ",))
        result = json.loads(stdout)
        self.assertEqual((result["status"], result["which_limit"], status), ("limit", "stopped", 4 if result["cost"] is None else 0))
        # A second time ends the process, whatever it does.
        status, stdout, _ = self.interrupted(*command, until=(b"0000 expanded, ",), presses=2)
        self.assertEqual((status, stdout), (-signal.SIGINT, ""))

    def test_the_same_plan_is_the_same_bytes(self):
        for planner in ("hap", "hidup", "amp", "ditto"):
            for name in ("plan.json", "plan.json.gz"):
                written, printed = set(), set()
                for _ in range(2):
                    out = self.path / name
                    planned = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", planner, "--no-times", "--out", out, "--json", *(("--labels-per-cut", 2) if planner == "hidup" else ()))
                    self.assertEqual(planned.returncode, 0, planned.stderr)
                    written.add(out.read_bytes())
                    printed.add(planned.stdout)
                self.assertEqual((len(written), len(printed)), (1, 1), planner)
            self.assertNotIn("seconds", json.loads(printed.pop()))
            self.assertEqual(run("verify", "--plan", out, "--model", MODEL, "--no-run").returncode, 0)

    def test_the_same_plan_every_time(self):
        for planner in ("amp", "ditto"):
            tables = {run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", planner, "--no-times").stdout for _ in range(2)}
            self.assertEqual(len(tables), 1)
        tables = {run("plan", "--model", MODEL, "--cluster", CLUSTER, "--no-times").stdout for _ in range(2)}
        self.assertEqual(len(tables), 1)


if __name__ == "__main__":
    HEDDLE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
