"""What `heddle plan` prints and writes, by every planner.

Usage: test_plan.py HEDDLE, from the repository root.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import time
import unittest

from command_line import CLUSTER, CommandLine, HEDDLE, MODEL, run


class Plan(CommandLine):
    def test_data_parallelism_both_ways(self):
        names = {"DP-EV", "DP-CP"}
        for option, otherwise in (([], "with"), (["--gradient-overlap"], "without")):
            planned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--json", *option)
            self.assertEqual(planned.returncode, 0, planned.stderr)
            summary = json.loads(planned.stdout)
            self.assertLessEqual(names, summary["baselines"].keys())
            self.assertEqual(set(summary["other_baselines"]), {f"{name}, {otherwise} gradient overlap" for name in names})
            table = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--details", *option).stdout
            self.assertIn("\nUnder other options than the plan's, which may be dearer\n", table)
            self.assertIn(f"DP-CP, {otherwise} gradient overlap", table)

    def test_a_plan_in_one_screen(self):
        mixed = ("--cluster", "examples/clusters/v100x2_p100x6.json", "--no-times")
        vgg = ("--model", "examples/models/vgg19.json.gz")
        whole, staged, one = (run("plan", *options, *mixed).stdout for options in (("--planner", "hap", *vgg), vgg, ("--model", MODEL)))
        for report in (whole, staged, one):
            self.assertLessEqual(max(map(len, report.splitlines())), 80, report)
            self.assertLessEqual(len(report.splitlines()), 55, report)
            self.assertLess(report.index("What to do"), report.index("\nDevices" if "\nDevices" in report else "\nStages"))
        self.assertRegex(whole, r"  shares +uneven: 2 x V100 take [\d.]+ % each; 6 x P100 take [\d.]+ %\s+each\n")
        self.assertRegex(whole, r"  tensor parallel +\d+ parameters, [\d.]+ GB: ")
        self.assertRegex(staged, r"  pipeline +\d+ stages, \d+ micro-batches, ")
        self.assertRegex(staged, r"  stage 0 +\d x [VP]100[^(]* \(")
        details = run("plan", "--planner", "hap", *vgg, *mixed, "--details").stdout
        self.assertIn("\nProgram (", details)
        self.assertNotIn("\nProgram (", whole)
        plan = json.loads(self.planned(*vgg, *mixed[:2])[0].read_text())  # what the words say is what the plan has
        kept = [s for s in plan["steps"] if s["do"] == "read" and plan["tensors"][s["tensor"]]["role"] == "parameter"]
        said = [int(n) for n in re.findall(r"(\d+) parameters?, [\d.]+ GB", whole)]
        self.assertEqual(sum(said), len(kept))

    def test_solver_of_ratios(self):
        self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--solver", "simplex").returncode, 2)
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", "--solver", "clp").returncode, 2)
        cluster = json.loads(pathlib.Path("examples/formats/preset_cluster.json").read_text())
        cluster["device_types"][0]["rates"] = {"float32": {"matmul": {"efficiency": {"scale": 1e10, "least": 0.05}}}}
        path = self.path / "cluster.json"
        path.write_text(json.dumps(cluster))
        by_clp, by_ipopt = (run("plan", "--planner", "hap", "--model", MODEL, "--cluster", path, "--json", "--solver", name) for name in ("clp", "ipopt"))
        self.assertEqual(by_clp.returncode, 0, by_clp.stderr)
        if "without Ipopt" in by_ipopt.stderr:
            return self.refused(by_ipopt, "--solver")
        self.assertEqual((by_ipopt.returncode, by_ipopt.stderr), (0, ""))
        self.assertLessEqual(json.loads(by_ipopt.stdout)["cost"], 1.001 * json.loads(by_clp.stdout)["cost"])

    def test_plans_in_segments(self):
        mixed = ("--cluster", "examples/clusters/v100x2_p100x6.json")
        best = self.planned(*mixed)[1]["cost"]
        for count in ("layers", "2", "20", "38"):
            out, summary = self.planned(*mixed, "--segments", count)
            self.assertLessEqual(summary["cost"], best)
            priced = json.loads(run("cost", "--plan", out, "--cluster", mixed[1], "--json").stdout)
            self.assertAlmostEqual(priced["cost"], summary["cost"], delta=1e-12)
        self.refused(run("plan", "--planner", "hap", "--model", MODEL, *mixed, "--segments", "1000"), "segments: 1000")
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
        pinned = ("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--pin")
        self.refused(run(*pinned, weight + "=shard(0.7)"), "dimension 0 of the tensor has")
        self.refused(run(*pinned, weight + "=shard()"), "expected numbers")
        self.refused(run(*pinned, "none=partial"), "no tensor 'none'")
        excluded = run(*pinned, weight + "=shard(0)", "--pin", weight + "=shard(1)", "--json")
        self.assertEqual(excluded.returncode, 3)
        self.assertEqual(json.loads(excluded.stdout)["reason"], "no program keeps what is pinned or forbidden")

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
        self.planned("--cluster", "examples/clusters/v100x4_nvlink.json", "--dtype", "float16")
        halves = ("--cluster", "examples/clusters/h100x16_nvlink.json", "--dtype", "bfloat16")
        kept, bare = (json.loads(self.planned(*halves, *option)[0].read_text()) for option in ((), ("--no-master-weights",)))
        self.assertEqual((kept["provenance"].get("master_weights"), bare["provenance"]["master_weights"]), (None, False))
        self.assertGreater(sum(kept["memory_bytes"]), sum(bare["memory_bytes"]))
        for option, value in (("--optimizer-bytes", "nan"), ("--turn", "nan")):
            self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", option, value).returncode, 2)
        for option in (("--segments", "2"), ("--gradient-overlap",), ("--group-machines",)):
            self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hidup", *option).returncode, 2)

    def test_machines_as_devices(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"] = [{"type": "P100", "devices": 2, "count": 3}]
        cluster["links"]["intra"] = {"bandwidth": 12e9, "latency": 1e-5}
        apart = self.write("cluster.json", cluster)
        cluster["machines"][0]["grouped"] = True
        grouped = self.write("grouped.json", cluster)
        out = self.path / "plan.json"
        planned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", apart, "--group-machines", "--out", out, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        summary = json.loads(planned.stdout)
        self.assertEqual(summary["group_sizes"], [2, 2, 2])
        said = json.loads(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", grouped, "--json").stdout)
        self.assertEqual(said["cost"], summary["cost"])
        self.assertIn("2 x P100", run("plan", "--planner", "hap", "--model", MODEL, "--cluster", grouped, "--no-times").stdout)

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
        cluster["collectives"] = {"all_reduce": {"latency": 1e-4, "seconds_per_byte": 1e-7}}  # measured on single devices, and slow
        slow = json.loads(run("cost", "--plan", out, "--cluster", self.write("measured.json", cluster), "--group-machines", "--json").stdout)
        self.assertGreater(slow["cost"], 2 * again["cost"])

    def test_machines_as_an_axis_of_a_mesh(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"] = [{"type": "P100", "devices": 2, "count": 3}]
        cluster["links"]["intra"] = {"bandwidth": 12e9, "latency": 1e-5}
        machines, out = self.write("cluster.json", cluster), self.path / "plan.json"
        planned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", "3x2", "--out", out, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        summary = json.loads(planned.stdout)
        self.assertEqual(json.loads(out.read_text())["mesh"], [3, 2])
        # A group reduces by a tree, which may be a little cheaper than the rings of a mesh.
        self.assertLessEqual(summary["cost"], 1.006 * json.loads(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--group-machines", "--json").stdout)["cost"])
        shown = json.loads(run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json", "--cluster", machines).stdout)
        self.assertTrue(shown["valid"] and shown["executed"] and shown["priced"], shown)
        self.assertEqual(shown["ranks"], 6)
        self.assertAlmostEqual(json.loads(run("cost", "--plan", out, "--cluster", machines, "--json").stdout)["cost"], summary["cost"], delta=1e-12)
        self.assertIn("3 x 2", run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", "3x2", "--no-times").stdout)
        # Three machines as the middle axis.
        one_slice = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", "1x3x2", "--out", out, "--json")
        self.assertEqual(one_slice.returncode, 0, one_slice.stderr)
        of_three = json.loads(one_slice.stdout)
        self.assertIn("mesh 3 x 2", of_three["baselines"])
        self.assertEqual(json.loads(out.read_text())["mesh"], [1, 3, 2])
        shown = json.loads(run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json", "--cluster", machines).stdout)
        self.assertTrue(shown["valid"] and shown["executed"] and shown["priced"], shown)
        self.assertAlmostEqual(json.loads(run("cost", "--plan", out, "--cluster", machines, "--json").stdout)["cost"], of_three["cost"], delta=1e-12)
        for sizes in ("268435456x268435456x268435456", "3x2x2", "6x1x1"):
            self.refused(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", sizes), "or three axes")
        self.refused(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", "2x3"), "expected groups of a machine's devices on the inner axis")
        for option in (("--group-machines",), ("--segments", "2")):
            self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", machines, "--mesh", "3x2", *option).returncode, 2)
        # Strategies of two axes are shown beside those of one.
        for strategy in ("data x ZeRO-1", "hybrid sharding", "data x tensor", "one axis", "fully sharded"):
            self.assertGreaterEqual(summary["baselines"][strategy], summary["cost"] * (1 - 1e-9), strategy)
        weight = "layers.1.attention.out_proj.weight"
        pinned = ("plan", "--model", MODEL, "--cluster", machines, "--mesh", "3x2", "--out", out, "--json")
        for options, allowed in ((("--pin", weight + "=replicated,shard(1)"), lambda forms: forms == ["replicated", "shard(1)"]),
                                 (("--forbid", weight + "=any,replicated", "--forbid", weight + "=any,mirrored"), lambda forms: forms[1].startswith("shard"))):
            asked = run(*pinned, *options)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            plan = json.loads(out.read_text())
            number = [t["name"] for t in plan["tensors"]].index(weight)
            held = [[s["to"], s["inside"][0]["to"]] for s in plan["steps"] if s["do"] == "read" and s["tensor"] == number]
            self.assertTrue(held and all(map(allowed, held)), held)
            self.assertTrue(json.loads(run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json").stdout)["executed"])
        of_three = [a if a != "3x2" else "1x3x2" for a in pinned]
        asked = run(*of_three, "--pin", weight + "=any,replicated,shard(1)")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        held = [s["inside"] for s in json.loads(out.read_text())["steps"] if s["do"] == "read" and s["tensor"] == number]
        self.assertTrue(held and all([i["to"] for i in inside] == ["replicated", "shard(1)"] for inside in held), held)
        self.refused(run(*of_three, "--pin", weight + "=any,shard(1)"), "expected a form for each of the 3 axes")
        self.refused(run(*pinned, "--pin", weight + "=shard(0)"), "expected a form for each of the 2 axes of the mesh")
        self.refused(run(*pinned, "--pin", weight + "=shard(0),shard(0.7)"), "dimension 0 of the tensor has")
        self.refused(run(*pinned, "--forbid", weight + "=shard(0),shard(1)"), "a form of one axis")
        excluded = run(*pinned, "--pin", weight + "=any,shard(0)", "--pin", weight + "=any,shard(1)")
        self.assertEqual(excluded.returncode, 3)
        self.assertEqual(json.loads(excluded.stdout)["reason"], "no program keeps what is pinned or forbidden")

    def test_all_meshes_of_a_cluster(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"] = [{"type": "P100", "devices": 4, "count": 2}]
        cluster["links"]["intra"] = {"bandwidth": 12e9, "latency": 1e-5}
        machines, out = self.write("cluster.json", cluster), self.path / "plan.json"
        costs = {}
        for mesh in ("4x2", "2x4", "2x2x2", "auto"):
            planned = run("plan", "--model", MODEL, "--cluster", machines, "--mesh", mesh, "--out", out, "--json")
            self.assertEqual(planned.returncode, 0, planned.stderr)
            costs[mesh] = json.loads(planned.stdout)["cost"]
            self.assertAlmostEqual(json.loads(run("cost", "--plan", out, "--cluster", machines, "--json").stdout)["cost"], costs[mesh], delta=1e-12)
            shown = json.loads(run("verify", "--plan", out, "--model", MODEL, "--shrink", "--json", "--cluster", machines).stdout)
            self.assertTrue(shown["valid"] and shown["executed"] and shown["priced"], shown)
        others = sorted(("4x2", "2x4", "2x2x2"), key=costs.get)
        self.assertEqual(costs["auto"], costs[others[0]])
        for other in others[1:]:
            self.assertEqual(json.loads(planned.stdout)["baselines"]["mesh " + " x ".join(other.split("x"))], costs[other])
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", machines, "--mesh", "4").returncode, 2)

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
        usage = run("plan", "--planner", "hap", "--model", model, "--cluster", CLUSTER, "--micro-batches", 2)
        self.assertEqual((usage.returncode, usage.stdout), (2, ""))

    def test_infeasible(self):
        out = self.path / "plan.json"
        result = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--memory-limit", "1e8", "--out", out, "--json")
        self.assertEqual(result.returncode, 3)
        summary = json.loads(result.stdout)
        self.assertEqual((summary["status"], summary["cost"]), ("infeasible", None))
        self.assertRegex(summary["reason"], "all devices together have 0.4 GB, and need .* GB at least")
        self.assertFalse(out.exists())
        for planner, limit, status in (("hap", "1e8", 3), ("joint", "1e6", 4)):
            page = self.path / (planner + ".html")
            result = run("plan", "--planner", planner, "--model", MODEL, "--cluster", CLUSTER, "--memory-limit", limit, "--out", out, "--html", page, "--json")
            self.assertEqual((result.returncode, out.exists()), (status, False))
            self.assertIn("There is no plan: " + json.loads(result.stdout)["reason"], page.read_text())
        for method in ("recover", "exact", "both"):
            result = run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "ditto", "--memory-limit", "1e6", "--method", method, "--out", out, "--json")
            self.assertEqual((result.returncode, result.stderr, json.loads(result.stdout)["status"]), (3, "", "infeasible"))
            self.assertFalse(out.exists())

    def test_activations_that_are_recomputed(self):
        vit = ("--model", "examples/models/vit_2.json.gz", "--cluster", "examples/clusters/v100x4_nvlink.json")
        held, used = {}, {}
        for how in ("none", "selective", "full"):
            path, result = self.planned(*vit, "--planner", "hap", "--recompute", how)
            plan = json.loads(path.read_text())
            held[how] = plan["memory"][0]["activations"]
            used[how] = plan["cost"]
            self.assertEqual((plan["version"], plan["provenance"].get("recomputes", "none")), (1 if how == "none" else 3, how))
            self.assertEqual(any("region" in step for step in plan["steps"]), how != "none")
        self.assertLess(held["selective"], 0.8 * held["none"])
        self.assertLess(held["full"], 0.7 * held["selective"])
        self.assertLess(used["none"], used["selective"])
        self.assertLess(used["selective"], used["full"])
        self.assertLess(used["full"], 4 / 3 * used["none"])
        # Where memory is short, the planner of all does so by itself, and says it.
        limit = str(json.loads(self.planned(*vit, "--planner", "hap")[0].read_text())["memory_bytes"][0] * 0.6)
        tight = run("plan", *vit, "--memory-limit", limit, "--json", "--no-times")
        self.assertEqual(tight.returncode, 0, tight.stderr)
        families = json.loads(tight.stdout)["families"]
        self.assertTrue({"accumulated", "recomputed"} & families.keys())
        refused = run("plan", "--planner", "hidup", *vit, "--recompute", "full")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no option of this planner", refused.stderr)
        self.assertIn("selective", run("plan", *vit, "--recompute", "some").stderr)

    def test_more_machines_than_layers(self):
        model = ("--model", "examples/models/bert_12.json.gz", "--cluster", "examples/clusters/v100x8_p100x24.json", "--planner", "ditto")
        summary, plan = self.pipeline(*model)
        self.check_pipeline(summary, plan, 4, 32)
        self.assertRegex(summary["warnings"][0], "^[4-7] machines are left out$")
        started = time.monotonic()
        limited, _ = self.pipeline(*model, "--layers", "names", "--split", "free", "--time-limit", 1)
        self.assertLess(time.monotonic() - started, 6)  # ten sizes of micro-batch divide the batch

    def test_networks_of_no_use(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["links"]["inter"]["latency"] = 1e306
        table = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", self.write("slow.json", cluster)).stdout
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
            words = " ".join(run(*inputs).stdout.split())
            self.assertRegex(words, rf"status (optimal|feasible|limit \(width\)) among {space}")
            self.assertRegex(words, f"gap [0-9.]+ % among {space}")
        pinned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--pin", "patches.weight=replicated", "--json")
        self.assertEqual(json.loads(pinned.stdout)["space"], "one-axis programs that keep the pins at these shares")

    def test_one_answer(self):
        """Without --planner the best plan of all families is found."""
        model, cluster, out = ("--model", "examples/models/vgg19.json.gz"), ("--cluster", "examples/clusters/v100x8_p100x24.json"), self.path / "plan.json"
        planned = run("plan", *model, *cluster, "--compare", "--json", "--out", out)
        self.assertEqual((planned.returncode, planned.stderr), (0, ""))
        summary = json.loads(planned.stdout)
        self.assertEqual(summary["provenance"]["planner"], "joint")
        self.assertEqual(summary["space"], "plans of stages of whole layers, machine by machine")
        compared = {name: family["terms"] for name, family in summary["families"].items() if "terms" in family}
        self.assertLessEqual({"one axis", "groups", "turns", "amp", "ditto", "pipeline"}, set(compared))
        for name, terms in compared.items():
            used, limit = terms.pop("memory_bytes"), terms.pop("memory_limit_bytes")
            self.assertTrue(0 < used <= limit == 16e9)
            self.assertEqual(set(terms), {"compute", "outer", "inner", "sends", "gradients", "update", "parameters", "idle"})
            self.assertAlmostEqual(sum(terms.values()), summary["families"][name]["cost"], delta=1e-9)
        self.assertGreater(compared["pipeline"]["sends"], 0)
        self.assertGreater(compared["groups"]["outer"], 0)
        self.assertEqual(compared["one axis"]["idle"], 0)
        self.assertLessEqual(summary["lower_bound"], summary["cost"])
        costs = {name: family["cost"] for name, family in summary["families"].items() if family["cost"] is not None}
        self.assertLessEqual({"one axis", "groups", "turns", "amp", "ditto", "pipeline", "DP-CP"}, set(costs))
        self.assertEqual(min(costs.values()), summary["cost"])
        self.assertLessEqual(summary["cost"], json.loads(run("plan", *model, *cluster, "--planner", "hap", "--json").stdout)["cost"])
        priced = json.loads(run("cost", "--plan", out, *cluster, "--json").stdout)
        self.assertAlmostEqual(priced["cost"], summary["cost"], delta=1e-9 * summary["cost"])
        self.assertEqual(run("verify", "--plan", out, *model, "--no-run").returncode, 0)
        table = run("plan", *model, *cluster, "--compare", "--no-times").stdout
        self.assertIn("The best of each family, by one price", table)
        self.assertRegex(table, r"family +total +work +outer +inner +sends +reduce +update +gather +idle +full\n")
        self.assertLessEqual(max(map(len, table.splitlines())), 80)
        # Options of one planner alone ask for it, and so do device groups.
        self.assertEqual(json.loads(run("plan", *model, *cluster, "--group-machines", "--json").stdout)["provenance"]["planner"], "hap")
        grouped = json.loads(pathlib.Path("examples/clusters/v100x4_nvlink.json").read_text())
        for machine in grouped["machines"]:
            machine["grouped"] = True
        self.assertEqual(json.loads(run("plan", "--model", MODEL, "--cluster", self.write("grouped.json", grouped), "--json").stdout)["provenance"]["planner"], "hap")

    def test_spare_plans(self):
        """For each machine that may be lost there is a plan, which is the one for the others."""
        model, out = ("--model", "examples/models/vgg19.json.gz"), self.path / "plan.json"
        cluster = json.loads(pathlib.Path("examples/clusters/v100x2_p100x6.json").read_text())
        planned = run("plan", *model, "--cluster", "examples/clusters/v100x2_p100x6.json", "--spare", 1, "--out", out, "--json")
        self.assertEqual((planned.returncode, planned.stderr), (0, ""))
        summary = json.loads(planned.stdout)
        groups = len(cluster["machines"])
        self.assertEqual(sorted(spare["lost"] for spare in summary["spares"]), sorted([int(g == n) for g in range(groups)] for n in range(groups)))
        for spare in summary["spares"]:
            lost = spare["lost"].index(1)
            left = json.loads(json.dumps(cluster))
            left["machines"][lost]["count"] = left["machines"][lost].get("count", 1) - 1
            left["machines"] = [machine for machine in left["machines"] if machine.get("count", 1) > 0]
            priced = run("cost", "--plan", self.path / f"plan.lost-{'-'.join(map(str, spare['lost']))}.json", "--cluster", self.write("left.json", left), "--json")
            self.assertAlmostEqual(json.loads(priced.stdout)["cost"], spare["seconds"], delta=1e-9 * spare["seconds"])
            self.assertTrue(0 <= spare["received"] <= spare["stored"])
            self.assertGreaterEqual(spare["received"], spare["from_checkpoint"])
        self.recover(("--plan", out, *model, "--cluster", "examples/clusters/v100x2_p100x6.json"), summary["spares"])
        table = run("plan", *model, "--cluster", "examples/clusters/v100x2_p100x6.json", "--spare", 1, "--no-times").stdout
        self.assertRegex(table, r"machines lost +seconds +stages +stored +moves +from a checkpoint\n")
        self.assertLessEqual(max(map(len, table.splitlines())), 80)

    def test_plans_to_try(self):
        """The best plans of different families are recorded, and their times correct the cluster."""
        inputs = ("--model", "examples/models/vgg19.json.gz", "--cluster", "examples/clusters/v100x2_p100x6.json")
        planned = run("plan", *inputs, "--record", 3, "--out", self.path / "best.json", "--json")
        self.assertEqual((planned.returncode, planned.stderr), (0, ""))
        summary = json.loads(planned.stdout)
        tried = summary["trials"]
        self.assertEqual(len({one["family"] for one in tried}), 3)
        self.assertEqual(tried, sorted(tried, key=lambda one: one["cost"]))
        self.assertEqual(tried[0]["cost"], summary["cost"])
        lines = (self.path / "best.trials.csv").read_text().splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["plan", "best.trial1.json", "best.trial2.json", "best.trial3.json"])
        refused = run("calibrate", "--cluster", inputs[3], "--measured", self.path / "best.trials.csv")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has no plan that was run", refused.stderr)
        times = [1.3 * one["cost"] for one in tried]
        run_file = self.write("run.csv", "\n".join([lines[0]] + [line + str(t) for line, t in zip(lines[1:], times)]) + "\n\n")
        calibrated = run("calibrate", "--cluster", inputs[3], "--measured", run_file, "--out", self.path / "real.json", "--json")
        self.assertEqual(calibrated.returncode, 0, calibrated.stderr)
        found = json.loads(calibrated.stdout)
        self.assertLess(found["error_after"], 0.3 * found["error_before"])
        for one, trial, seconds in zip(tried, found["trials"], times):
            self.assertAlmostEqual(trial["measured"], seconds)
            priced = json.loads(run("cost", "--plan", one["plan"], "--cluster", self.path / "real.json", "--json").stdout)
            self.assertAlmostEqual(priced["cost"], trial["predicted"], delta=1e-9 * seconds)
        for text, problem in (
            ("file,seconds\n", "line 1: expected a header with the columns plan and seconds"),
            ("plan,seconds\n\na.json\n", "line 3: has 1 cells, expected 2 as in the header"),
            ("plan,seconds\n,1\n", "line 2: expected the file of a plan"),
            ("plan,seconds\na.json,-1\n", "line 2: '-1', expected the seconds of an iteration"),
            ("plan,seconds\na.json,inf\n", "line 2: 'inf', expected the seconds of an iteration"),
            ("plan,seconds\nnone.json,1\n", "none.json"),
            ("", "has no plan that was run"),
        ):
            refused = run("calibrate", "--cluster", inputs[3], "--measured", self.write("bad.csv", text))
            self.assertEqual(refused.returncode, 1)
            self.assertIn(problem, refused.stderr)
        # The second round: plans are priced on another cluster than theirs, and what was noted is not written over.
        again = run("calibrate", "--cluster", self.path / "real.json", "--measured", run_file, "--json")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertLess(json.loads(again.stdout)["error_before"], 0.2 * found["error_before"])
        (self.path / "best.trials.csv").write_text(run_file.read_text())
        refused = run("plan", *inputs, "--record", 3, "--out", self.path / "best.json")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has the times of plans that were run", refused.stderr)
        for name in ("a,b.json", "#a.json", " a.json"):
            refused = run("plan", *inputs, "--record", 2, "--out", self.path / name)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("is a name that the list of plans to try cannot have", refused.stderr)
        other = json.loads(pathlib.Path(inputs[3]).read_text())
        other["device_types"].reverse()
        for machine in other["machines"]:
            machine["type"] = {"V100": "P100", "P100": "V100"}[machine["type"]]
        refused = run("calibrate", "--cluster", self.write("other.json", other), "--measured", run_file)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("where the cluster has a", refused.stderr)
        for options, problem in ((("--record", 2), "needs --out"), (("--record", 2, "--planner", "hap"), "no option of this planner")):
            refused = run("plan", *inputs, *options)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(problem, refused.stderr)

    def recover(self, inputs, spares):
        """After the loss of a machine of 2 and 6, its plan is looked up, and what has to move is at most what was said."""
        most = {}
        for machine in range(8):
            found = json.loads(run("recover", *inputs, "--lost", machine, "--json").stdout)
            self.assertLess(found["seconds"], 1e-3)
            self.assertEqual(sorted(found["machines"]), [m for m in range(8) if m != machine])
            self.assertEqual(found["received"], found["stored"] - found["kept"])
            spare = next(s for s in spares if s["lost"] == [int(machine < 2), int(machine >= 2)])
            self.assertAlmostEqual(found["cost"], spare["seconds"], delta=1e-9 * spare["seconds"])
            self.assertEqual(pathlib.Path(found["plan"]).name, f"plan.lost-{spare['lost'][0]}-{spare['lost'][1]}.json")
            for field in ("received", "from_checkpoint"):
                most[str(spare["lost"]), field] = max(found[field], most.get((str(spare["lost"]), field), 0))
        for spare in spares:
            for field in ("received", "from_checkpoint"):
                self.assertAlmostEqual(most[str(spare["lost"]), field], spare[field], delta=1)
        report = run("recover", *inputs, "--lost", 7, "--no-times")
        self.assertEqual((report.returncode, report.stderr), (0, ""))
        self.assertRegex(report.stdout, r"lost +1 of 1 x P100\nnext plan .*plan\.lost-0-1\.json\n")
        self.assertNotIn("looked up", report.stdout)
        for arguments, sentence in ((("--lost", 8), "machine 8 is not one of the cluster's 8"), (("--lost", "3,3"), "machine 3 is named twice"),
                                    (("--lost", "0,4"), "no plan was made for the loss of 1 of 1 x V100, 1 of 1 x P100"), (("--lost", 1, "--lost-before", 2), "machine 2 was lost before")):
            refused = run("recover", *inputs, *arguments)
            self.assertEqual((refused.returncode, refused.stdout, len(refused.stderr.splitlines())), (1, "", 1))
            self.assertIn(sentence, refused.stderr)
        self.assertEqual(run("recover", *inputs, "--lost", "-1").returncode, 2)
        self.assertEqual(run("recover", *inputs).returncode, 2)

    def pipeline(self, *arguments, status=0):
        """What `heddle plan --json` prints, and the plan it writes."""
        out = self.path / "pipeline.json"
        planned = run("plan", *arguments, "--out", out, "--json")
        self.assertEqual((planned.returncode, planned.stderr), (status, ""), planned)
        summary = json.loads(planned.stdout)
        for field in ("status", "cost", "lower_bound", "statistics", "seconds", "warnings", "baselines", "memory_bytes", "memory_limit_bytes"):
            self.assertIn(field, summary)
        return summary, json.loads(out.read_text()) if out.exists() else None

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
        kinds = json.loads(run("model", model[1], "--json").stdout)["kinds"]
        self.assertEqual(sum(layer["operators"] for layer in plan["layers"]), sum(kind["count"] for kind in kinds))
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

    def test_interrupted_plans(self):
        out, model = self.path / "plan.json", "examples/models/gpt2_12.json.gz"
        inputs = ("plan", "--model", model, "--cluster", "examples/clusters/v100x8_p100x24.json", "--out", out, "--json")
        long_runs = {"hap": ((b"hap, ", b" s, best "), "--gradient-overlap"), "hidup": ((b"hidup, ", b"longer search, ", b" s, best "), "--labels-per-cut", 1_000_000),
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
        tables = {run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--no-times").stdout for _ in range(2)}
        self.assertEqual(len(tables), 1)


if __name__ == "__main__":
    unittest.main()
