"""What `heddle verify` and `heddle cost` say of plans, true ones and others.

Usage: test_verify.py HEDDLE, from the repository root.
"""
import json
import pathlib
import resource
import unittest

from command_line import CLUSTER, CommandLine, MODEL, run


class Verify(CommandLine):
    def test_plan_verify_cost(self):
        out, trace = self.path / "plan.json", self.path / "trace.json"
        planned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out, "--trace", trace, "--json")
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

    def test_verify_runs_the_plan(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
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
        chosen = json.loads(run("verify", "--plan", out, "--model", MODEL, "--json").stdout)
        self.assertEqual((chosen["valid"], chosen["executed"], chosen["shrunk"], chosen["pieces"]), (True, 1, True, 0))

    def test_verify_runs_pipelines_whole(self):
        """What stages and copies send too: nothing of these is left to pieces."""
        out = self.path / "plan.json"
        for planner in ("amp", "ditto"):
            for model in (MODEL, "examples/models/vgg19.json.gz", "examples/models/bert_moe_2.json.gz"):
                with self.subTest(f"{model} by {planner}"):
                    planned = run("plan", "--planner", planner, "--model", model, "--cluster", CLUSTER, "--out", out)
                    self.assertEqual((planned.returncode, planned.stderr), (0, ""))
                    result = json.loads(run("verify", "--plan", out, "--model", model, "--json").stdout)
                    self.assertEqual((result["valid"], result["executed"], result["pieces"]), (True, 1, 0))
                    self.assertLess(result["max_relative_error"], 1e-10)

    def test_verify_runs_plans_of_stages(self):
        """As `heddle plan` makes them where no planner is named: one stage on some of the devices, and unlike stages with uneven shares."""
        out, vgg = self.path / "plan.json", "examples/models/vgg19.json.gz"
        for model, cluster, stages in ((MODEL, "examples/clusters/v100x8_p100x24.json", 1), (vgg, "examples/clusters/v100x2_p100x6.json", 4)):
            planned = run("plan", "--model", model, "--cluster", cluster, "--out", out)
            self.assertEqual((planned.returncode, planned.stderr), (0, ""))
            plan = json.loads(out.read_text())
            self.assertEqual(len(plan["pipeline"]), stages)
            self.assertEqual(plan["micro_batches"] > 1, stages > 1)
            for options in ((), ("--cluster", cluster, "--seed", 7)):
                verified = run("verify", "--plan", out, "--model", model, "--json", *options)
                self.assertEqual((verified.returncode, verified.stderr), (0, ""))
                shown = json.loads(verified.stdout)
                self.assertEqual((shown["valid"], shown["executed"], shown["pieces"], shown["shrunk"], shown["stages"], shown["priced"]), (True, 1, 0, True, stages, len(options) > 0))
                self.assertEqual((shown["ranks"], shown["micro_batches"]), (sum(len(stage["devices"]) for stage in plan["pipeline"]), min(plan["micro_batches"], stages + 1)))
                self.assertLess(shown["max_relative_error"], 1e-10)
                self.assertAlmostEqual(shown["loss"], shown["single_device_loss"], delta=1e-9 * shown["loss"])
        self.assertTrue(any(len(set(cut["counts"])) > 1 for stage in plan["pipeline"] for cut in stage["plan"]["cuts"]))
        text = run("verify", "--plan", out, "--model", vgg)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        for fragment in ("valid: 4 stages, 16 micro-batches; ", "run with smaller dimensions: 4 stages, 5 micro-batches, the shares of the finest cuts rounded\n", "on 8 ranks", "largest relative error"):
            self.assertIn(fragment, text.stdout)
        pieces = json.loads(run("verify", "--plan", out, "--model", vgg, "--run-memory", 3e6, "--json").stdout)
        self.assertEqual((pieces["valid"], pieces["loss"]), (True, None))
        self.assertTrue(0.5 < pieces["executed"] < 1 < pieces["pieces"])
        self.assertIn("not run: stage 2: pieces do not send what enters it", pieces["warnings"])

        def read_whole(stages):
            next(s for s in stages[1]["steps"] if s["do"] == "read")["to"] = "replicated"

        def without_what_enters(stages):
            del stages[1]["steps"][0]

        def other_share(stages):
            counts = stages[0]["cuts"][0]["counts"]
            counts[0], counts[1] = counts[0] + 1, counts[1] - 1

        def other_reduction(stages):
            next(s for s in stages[0]["steps"] if s.get("deferred_transfers"))["deferred_transfers"][0]["bytes"] /= 2

        for lie, problem in ((read_whole, "stage 1: "), (without_what_enters, "stage 1: "), (other_share, "stage 0: device 0: its memory"), (other_reduction, "stage 0: ")):
            lying = json.loads(out.read_text())
            lie([stage["plan"] for stage in lying["pipeline"]])
            with self.subTest(lie=lie.__name__):
                self.refused(run("verify", "--plan", self.write("lying.json", lying), "--model", vgg), "lying.json", problem)

    def test_verify_runs_in_pieces_what_is_too_large(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        verify = ("verify", "--plan", out, "--model", MODEL)
        memory, result = 4e6, {"pieces": 0}
        while result["pieces"] == 0:
            memory *= 0.8
            verified = run(*verify, "--run-memory", memory, "--json")
            self.assertEqual((verified.returncode, verified.stderr), (0, ""))
            result = json.loads(verified.stdout)
        self.assertEqual((result["valid"], result["executed"], result["shrunk"], result["loss"], result["warnings"]), (True, 1, True, None, []))
        self.assertGreater(result["pieces"], 1)
        self.assertLess(result["max_relative_error"], 1e-10)
        self.assertGreater(sum(collective["executed_bytes"] for collective in result["collectives"].values()), 0)
        text = run(*verify, "--run-memory", memory).stdout
        self.assertIn(f"run in {result['pieces']} pieces", text)
        self.assertIn(", 100 %", text)
        for options, why in ((("--run-memory", 1), "more memory or work"), (("--run-memory", memory, "--run-seconds", 1e-9), "time is up")):
            nothing = json.loads(run(*verify, *options, "--json").stdout)
            self.assertEqual((nothing["valid"], nothing["executed"], nothing["pieces"]), (True, 0, 0))
            self.assertIn(why, nothing["warnings"][0])

    def test_verify_runs_a_small_model_whole(self):
        model, out = json.loads(pathlib.Path("examples/formats/model.json").read_text()), self.path / "plan.json"
        known = self.write("model.json", model)
        self.assertEqual(run("plan", "--planner", "hap", "--model", known, "--cluster", CLUSTER, "--out", out).returncode, 0)
        result = run("verify", "--plan", out, "--model", known, "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["shrunk"], json.loads(result.stdout)["executed"]), (0, False, 1))
        model["rules"]["my.scale"] = "(b d), (d) -> (b d)"  # linear in nothing: no sum of products
        unknown = self.write("unknown.json", model)
        self.assertEqual(run("plan", "--planner", "hap", "--model", unknown, "--cluster", CLUSTER, "--out", out).returncode, 0)
        self.refused(run("verify", "--plan", out, "--model", unknown), "unknown.json", "my_scale", "no kernel")
        self.assertEqual(run("verify", "--plan", out, "--model", unknown, "--no-run").returncode, 0)

    def test_too_few_threads(self):
        cluster = json.loads(pathlib.Path(CLUSTER).read_text())
        cluster["machines"][0]["count"] = 300
        cluster, out = self.write("many.json", cluster), self.path / "plan.json"
        model = "examples/formats/model.json"
        self.assertEqual(run("plan", "--planner", "hap", "--model", model, "--cluster", cluster, "--out", out).returncode, 0)
        self.assertEqual(run("verify", "--plan", out, "--model", model).returncode, 0)

        def one_gigabyte():  # no room for the stacks of 300 threads
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        self.refused(run("verify", "--plan", out, "--model", model, preexec_fn=one_gigabyte), "unavailable")

    def test_a_broken_plan_is_refuted(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        plan = json.loads(out.read_text())
        del plan["steps"][len(plan["steps"]) // 2]
        refuted = run("verify", "--plan", self.write("broken.json", plan), "--model", MODEL)
        self.assertEqual(refuted.returncode, 1)
        self.assertEqual(len(refuted.stderr.splitlines()), 1)
        other = run("verify", "--plan", out, "--model", "examples/models/vgg19.json.gz")
        self.assertEqual(other.returncode, 1)
        self.assertIn("another number of tensors", other.stderr)

    def test_a_plan_timed_by_an_unknown_accumulator(self):
        out = self.path / "plan.json"
        self.assertEqual(run("plan", "--model", MODEL, "--cluster", CLUSTER, "--planner", "hap", "--out", out).returncode, 0)
        plan = json.loads(out.read_text())
        plan["provenance"]["accumulator"] = "mine"
        out.write_text(json.dumps(plan))
        self.assertEqual(run("verify", "--plan", out, "--model", MODEL, "--no-run").returncode, 0)
        for command in (("verify", "--plan", out, "--model", MODEL, "--cluster", CLUSTER, "--no-run"), ("cost", "--plan", out, "--cluster", CLUSTER)):
            self.refused(run(*command), "the accumulator 'mine'", "expected")

    def test_what_is_no_plan(self):
        for command in (("verify", "--plan", CLUSTER, "--model", MODEL), ("cost", "--plan", CLUSTER, "--cluster", CLUSTER)):
            self.refused(run(*command), CLUSTER, "format", "expected heddle.plan or heddle.pipeline_plan")


if __name__ == "__main__":
    unittest.main()
