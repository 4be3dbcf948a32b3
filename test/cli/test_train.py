"""`heddle train`: plans of all planners train as a single device does, in threads and in processes.

Usage: test_train.py HEDDLE [MPIRUN...], from the repository root. Models come from Debian's PyTorch.
"""
import json
import os
import statistics
import subprocess
import unittest

from training_case import CLUSTER, HEDDLE, MODELS, MPIRUN, SLOW_NETWORK, TrainingCase, run, torch, write_safetensors


def half_cluster():
    """The cluster with rates of types of 16 bits."""
    types = [{**t, "rates": {**t["rates"], "bfloat16": t["rates"]["float32"]}} for t in CLUSTER["device_types"]]
    return {**CLUSTER, "device_types": types}


class Train(TrainingCase):
    def test_plans_of_all_planners_train_as_a_single_device_does(self):
        pipelines = 0
        for name in MODELS:
            for planner in ("hap", "hidup", "amp", "ditto"):
                with self.subTest(model=name, planner=planner):
                    plan, content = self.plan(name, "--planner", planner)
                    ranks = 4
                    if "stages" in content and content["format"] == "heddle.pipeline_plan":
                        devices = [d for s in content["stages"] for d in s["devices"]]
                        ranks = sum(len(d) if isinstance(d, list) else 1 for d in devices)
                        pipelines += len(content["stages"]) > 1
                    options = ("--check", "--clip", "5", "--optimizer", "adamw", "--rate", "0.01")
                    losses = self.equals_single_device(self.train(plan, name, *options))
                    if MPIRUN:
                        in_job = self.equals_single_device(self.train(plan, name, *options, ranks=ranks))
                        for one, other in zip(losses, in_job):
                            self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))
        self.assertGreater(pipelines, 0)

    def test_the_time_is_noted_in_a_list_of_trials(self):
        plan, _ = self.plan("gpt", "--planner", "hap")
        for ranks in (None, 4) if MPIRUN else (None,):
            with self.subTest(ranks=ranks):
                trials = self.path / "run.csv"
                trials.write_bytes(b"\xef\xbb\xbf# of today\nplan, seconds ,note\r\nother.json,,is kept\r\nplan.json,  ,also\r\n")
                told = json.loads(self.train(plan, "gpt", "--trials", trials, "--accumulate", "2", ranks=ranks, steps=6).stdout)
                first, second, third = (line.split(",") for line in trials.read_text("utf-8-sig").splitlines()[1:])
                self.assertEqual((first, second), (["plan", " seconds ", "note"], ["other.json", "", "is kept"]))
                self.assertEqual((third[0], third[2]), ("plan.json", "also"))
                self.assertAlmostEqual(float(third[1]), statistics.median(told["seconds"][1:]) / 2)
                again = json.loads(self.train(plan, "gpt", "--trials", trials, ranks=ranks, steps=1).stdout)  # another time takes its place
                self.assertAlmostEqual(float(trials.read_text("utf-8-sig").splitlines()[-1].split(",")[1]), again["seconds"][0])
        trials.write_text("plan,seconds\nother.json,0.5\n")
        refused = self.train(plan, "gpt", "--trials", trials, steps=1)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("has no line for", refused.stderr)
        missing = self.train(plan, "gpt", "--trials", self.path / "none.csv", steps=1)
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))

    def test_plans_that_recompute_train_as_a_single_device_does(self):
        options = ("--check", "--clip", "5", "--optimizer", "adamw", "--rate", "0.01")
        for name in MODELS:
            held = sum(memory["activations"] for memory in self.plan(name, "--planner", "hap")[1]["memory"])
            for how in ("selective", "full"):
                with self.subTest(model=name, recompute=how):
                    plan, content = self.plan(name, "--planner", "hap", "--recompute", how)
                    self.assertEqual(content["provenance"]["recomputes"], how)
                    holds = sum(memory["activations"] for memory in content["memory"])
                    self.assertLessEqual(holds, held)
                    if name in ("gpt", "experts"):  # nearly all of convolutions is costly, and the decoder saves little
                        self.assertLess(holds, held)
                    losses = self.equals_single_device(self.train(plan, name, *options))
                    if MPIRUN:
                        in_job = self.equals_single_device(self.train(plan, name, *options, ranks=4))
                        for one, other in zip(losses, in_job):
                            self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))

    def test_plans_of_stages_train_as_a_single_device_does(self):
        one_stage = {**SLOW_NETWORK, "device_types": CLUSTER["device_types"]}
        for count, cluster in ((2, SLOW_NETWORK), (1, one_stage)):
            plan, content = self.stages(count, cluster)
            ranks = sum(len(stage["devices"]) for stage in content["pipeline"])
            if count > 1:
                self.assertGreater(content["time"]["shared"], 0)  # of an embedding that both stages use
                self.assertEqual(ranks, 4)
            for options in (("--optimizer", "adamw", "--rate", "0.01", "--clip", "5"), ("--optimizer", "adam", "--accumulate", "2"),
                            ("--optimizer", "sgd", "--rate", "1e-4", "--momentum", "0.9", "--clip", "0.5")):
                with self.subTest(stages=count, options=options):
                    losses = self.equals_single_device(self.train(plan, "gpt", "--check", *options, steps=50 if "adamw" in options else 10))
                    if MPIRUN:
                        in_job = self.equals_single_device(self.train(plan, "gpt", "--check", *options, ranks=ranks, steps=len(losses)))
                        for one, other in zip(losses, in_job):
                            self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))

    def test_plans_in_rounds_train_as_a_single_device_does(self):
        plan, content = self.rounds()
        self.assertEqual(content["version"], 4)
        rounds = len(content["pipeline"]) // len({tuple(stage["devices"]) for stage in content["pipeline"]})
        for options in (("--optimizer", "adamw", "--rate", "0.01", "--clip", "5"), ("--optimizer", "sgd", "--rate", "1e-4", "--accumulate", "2")):
            losses = self.equals_single_device(self.train(plan, "deep", "--check", *options, steps=20))
            if MPIRUN:
                in_job = self.equals_single_device(self.train(plan, "deep", "--check", *options, ranks=4, steps=20))
                for one, other in zip(losses, in_job):
                    self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))
        cluster = self.path / "slow_devices.json"
        verified = run("verify", "--plan", plan, "--model", self.model("deep"), "--cluster", cluster)
        self.assertEqual(verified.returncode, 0, verified.stderr)
        self.assertIn(f" stages in {rounds} rounds, ", verified.stdout)
        priced = json.loads(run("cost", "--plan", plan, "--cluster", cluster, "--json").stdout)
        self.assertAlmostEqual(priced["cost"], content["cost"], delta=1e-9 * content["cost"])
        needed = [sum(stage["plan"]["memory"][0][term] for term in stage["plan"]["memory"][0]) for stage in content["pipeline"]]
        for device, held in enumerate(priced["memory_bytes"]):
            of_device = [n for n, stage in zip(needed, content["pipeline"]) if device in stage["devices"]]
            self.assertEqual(len(of_device), rounds)
            self.assertAlmostEqual(held, sum(of_device), delta=1)

    def test_plans_whose_stages_take_turns_train_as_a_single_device_does(self):
        plan, content = self.turns()
        ranks = sum(len(stage["devices"]) for stage in content["pipeline"])
        for options in (("--optimizer", "adamw", "--rate", "0.01", "--clip", "5"), ("--optimizer", "sgd", "--rate", "1e-4", "--accumulate", "2")):
            losses = self.equals_single_device(self.train(plan, "gpt", "--check", *options, steps=20))
            if MPIRUN:
                in_job = self.equals_single_device(self.train(plan, "gpt", "--check", *options, ranks=ranks, steps=20))
                for one, other in zip(losses, in_job):
                    self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))
        cluster = self.path / "slow_links.json"
        verified = run("verify", "--plan", plan, "--model", self.model("gpt"), "--cluster", cluster)
        self.assertEqual(verified.returncode, 0, verified.stderr)
        priced = json.loads(run("cost", "--plan", plan, "--cluster", cluster, "--json").stdout)
        self.assertAlmostEqual(priced["cost"], content["cost"], delta=1e-9 * content["cost"])
        refused = run("export", "--plan", plan, "--to", "megatron")
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("take turns", refused.stderr)

    def test_a_mean_over_labels_that_count_is_that_of_the_batch_in_micro_batches(self):
        torch.manual_seed(1)
        module, inputs = MODELS["decoder"]()
        module.double()
        tokens = torch.randint(20, (24, 5))
        tokens[:4, 1:] = 0  # so micro-batches have unlike numbers of labels
        weights = write_safetensors(self.path / "w.safetensors", dict(module.named_parameters()))
        given = write_safetensors(self.path / "d.safetensors", {"tokens": tokens})
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        losses = []
        for step in range(6):
            loss = module(tokens[step % 3 * 8:(step % 3 + 1) * 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        for planner in ("hap", "hidup", "ditto"):
            plan, content = self.plan("decoder", "--planner", planner)
            if planner == "hidup":
                self.assertIn("tokens.whole", [t["name"] for t in content["tensors"] if t.get("whole_of") == "tokens"])
            result = self.train(plan, "decoder", "--weights", weights, "--data", given, "--optimizer", "sgd", "--rate", "0.5", steps=6)
            self.assertEqual(result.returncode, 0, result.stderr)
            for ours, theirs in zip(json.loads(result.stdout)["losses"], losses, strict=True):
                self.assertAlmostEqual(ours, theirs, delta=1e-10 * abs(theirs))
        whole = write_safetensors(self.path / "whole.safetensors", {"tokens.whole": tokens})
        self.refused(run("train", "--plan", plan, "--model", self.model("decoder"), "--data", whole), "tokens.whole: is no input of the model")

    @unittest.skipUnless(MPIRUN, "there is no mpirun")
    def test_each_process_does_the_work_of_its_device(self):
        plan, content = self.plan("gpt", "--planner", "amp", "--pipeline-degree", "2", "--data-degree", "2", "--tensor-degrees", "1")
        first, last = (stage["devices"] for stage in content["stages"])
        for first, last in ((first, last), (last, first)):
            content["stages"][0]["devices"], content["stages"][1]["devices"] = first, last
            plan.write_text(json.dumps(content))
            told = subprocess.run([*MPIRUN, "--tag-output", "-n", "4", HEDDLE, "train", "--plan", plan, "--model", self.model("gpt"), "--steps", "1", "--json"],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn(f"[1,{first[0][0]}]<stdout>:{{", told.stdout)  # the first device of the first stage tells

    @unittest.skipUnless(MPIRUN, "there is no mpirun")
    def test_devices_that_a_plan_leaves_out_may_have_a_process(self):
        far = {**CLUSTER, "links": {"inter": {"bandwidth": 1e3, "latency": 1}}}  # so that few devices compute
        plan, content = self.plan("gpt", "--planner", "joint", cluster=self.write("far.json", far))
        busy = sum(len(stage["devices"]) for stage in content["pipeline"])
        self.assertLess(busy, 4)
        for ranks in (busy, 4):
            self.equals_single_device(self.train(plan, "gpt", "--check", "--optimizer", "adam", ranks=ranks, steps=5))
        told = self.train(plan, "gpt", ranks=5)
        self.assertIn(f"keeps {busy} devices busy, and there are 5 processes; start one for each, or for each of the cluster's 4", told.stderr)

    def test_optimisers_accumulation_and_groups(self):
        plan, _ = self.plan("gpt", "--group-machines")
        for options in (("--optimizer", "sgd", "--rate", "1e-4", "--momentum", "0.9"), ("--optimizer", "adam", "--accumulate", "3"),
                        ("--clip", "0.5", "--optimizer", "adam")):
            with self.subTest(options=options):
                self.equals_single_device(self.train(plan, "gpt", "--check", *options, steps=20))
        if MPIRUN:
            self.equals_single_device(self.train(plan, "gpt", "--check", "--clip", "1", "--optimizer", "adam", ranks=4, steps=20))

    def test_single_precision_is_near(self):
        plan, _ = self.plan("gpt", "--planner", "hap")
        self.equals_single_device(self.train(plan, "gpt", "--check", "--precision", "float32", "--optimizer", "adam", steps=20), most=1e-3)

    def test_given_weights_and_data_train_as_in_pytorch(self):
        torch.manual_seed(1)
        module, inputs = MODELS["convolutions"]()
        module.double()
        batch = len(inputs["y"])
        data = {"x": torch.rand(3 * batch, 3, 8, 8, dtype=torch.float64), "y": torch.randint(10, (3 * batch,))}
        for types in (torch.float64, torch.bfloat16, torch.float16):
            for p in module.parameters():
                p.data = torch.rand_like(p).mul(0.2).sub(0.1).to(types).double()
            weights = write_safetensors(self.path / "w.safetensors", {n: p.to(types) for n, p in module.named_parameters()})
            given = write_safetensors(self.path / "d.safetensors", data)
            plan, _ = self.plan("convolutions", "--planner", "hap")
            options = ("--weights", weights, "--data", given, "--optimizer", "sgd", "--rate", "0.001", "--momentum", "0.9")
            results = [self.train(plan, "convolutions", *options, steps=8)]
            results += [self.train(plan, "convolutions", *options, steps=8, ranks=4)] if MPIRUN else []
            optimizer = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9)
            losses = []
            for step in range(8):
                rows = slice(step % 3 * batch, (step % 3 + 1) * batch)
                loss = module(data["x"][rows], data["y"][rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            for result in results:
                self.assertEqual(result.returncode, 0, result.stderr)
                for ours, theirs in zip(json.loads(result.stdout)["losses"], losses, strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=1e-10 * abs(theirs))

        def refused(option, tensors, told):
            file = write_safetensors(self.path / "bad.safetensors", tensors)
            self.refused(run("train", "--plan", plan, "--model", self.model("convolutions"), option, file), told)
        refused("--data", {"z": data["x"]}, "z: is no input of the model")
        refused("--data", {"x": data["x"][:-1]}, "x: has shape")
        refused("--data", {"y": data["y"].double()}, "y: has floating-point numbers")
        refused("--weights", {"head.bias": torch.zeros(11)}, "head.bias: has shape [11], expected [10]")
        refused("--weights", {"x": data["x"][:batch]}, "x: is no parameter")
        cut = self.path / "cut.safetensors"
        cut.write_bytes(given.read_bytes()[:-1])
        self.refused(run("train", "--plan", plan, "--model", self.model("convolutions"), "--data", cut), "cut.safetensors")

    def test_a_loss_that_is_no_number_stops_training(self):
        plan, _ = self.plan("gpt", "--planner", "hap")
        for ranks in (None, 4) if MPIRUN else (None,):
            result = self.train(plan, "gpt", "--rate", "1e18", ranks=ranks)
            self.assertEqual(result.returncode, 1, result)
            told = [line for line in result.stderr.splitlines() if line.startswith("heddle: ")]
            self.assertEqual(len(told), 1, result.stderr)
            self.assertRegex(told[0], r"the loss of step \d+ is no finite number")

    def test_kernels_of_libtorch(self):
        plan, _ = self.plan("gpt", "--planner", "hap")
        training = ("--check", "--optimizer", "adamw", "--clip", "1")
        options = (*training, "--kernels", "libtorch")
        if not os.path.exists(os.path.join(os.path.dirname(HEDDLE), "heddle-train-libtorch")):
            self.refused(run("train", "--plan", plan, "--model", self.model("gpt"), *options), "built without libtorch")
            return
        by_reference = self.equals_single_device(self.train(plan, "gpt", *training, steps=10))
        for ranks in (None, 4) if MPIRUN else (None,):
            losses = self.equals_single_device(self.train(plan, "gpt", *options, ranks=ranks, steps=10))
            for one, other in zip(losses, by_reference):
                self.assertAlmostEqual(one, other, delta=1e-9 * abs(one))
        if not torch.cuda.is_available():
            self.refused(run("train", "--plan", plan, "--model", self.model("gpt"), "--device", "cuda"), "CUDA")
        on_cpu = ("--device", "cpu", "--graph")
        self.refused(run("train", "--plan", plan, "--model", self.model("gpt"), *on_cpu), "--graph: is for --device cuda")
        plan, _ = self.plan("experts", "--planner", "amp")
        self.equals_single_device(self.train(plan, "experts", *options, steps=10))
        plan, _ = self.stages()
        for ranks in (None, 4) if MPIRUN else (None,):
            self.equals_single_device(self.train(plan, "gpt", *options, ranks=ranks, steps=10))

    def test_scalars_of_16_bits(self):
        plan, content = self.plan("gpt", "--planner", "hap", "--dtype", "bfloat16", cluster=self.write("half.json", half_cluster()))
        self.assertEqual(content["provenance"]["dtype"], "bfloat16")
        options = ("--optimizer", "adam", "--clip", "5", "--kernels", "libtorch")
        self.refused(self.train(plan, "gpt", "--precision", "bfloat16"), "bfloat16 is for --kernels libtorch")
        if not os.path.exists(os.path.join(os.path.dirname(HEDDLE), "heddle-train-libtorch")):
            return
        single = self.equals_single_device(self.train(plan, "gpt", *options, "--precision", "float32", "--check", steps=8), most=1e-5)
        for precision, most in (("bfloat16", 0.01), ("float16", 0.002)):
            with self.subTest(precision=precision):
                folder = self.path / precision
                of_type = (*options, "--precision", precision)
                losses = self.equals_single_device(self.train(plan, "gpt", *of_type, "--check", steps=8), most=most)
                if precision == "bfloat16":
                    for one, other in zip(losses, single, strict=True):
                        self.assertAlmostEqual(one, other, delta=most * other)
                        self.assertNotEqual(one, other)
                first = self.train(plan, "gpt", *of_type, "--save", folder, steps=4)
                index = json.loads((folder / "checkpoint.json").read_text())
                self.assertEqual((index["dtype"], "gradient_scale" in index), ("float32", precision == "float16"))
                made = [json.loads(result.stdout) for result in (first, self.train(plan, "gpt", *of_type, "--resume", folder, steps=8))]
                self.assertEqual(made[0]["losses"] + made[1]["losses"], losses)  # to the last bit
                if MPIRUN:  # which adds up in another order
                    in_job = json.loads(self.train(plan, "gpt", *of_type, "--resume", folder, ranks=4, steps=8).stdout)
                    for one, other in zip(in_job["losses"], made[1]["losses"], strict=True):
                        self.assertAlmostEqual(one, other, delta=most * other)
                if precision == "float16":  # the first scale is too large here, and the second is not
                    self.assertGreater(made[0]["left_out"], 0)
                    small = json.loads(self.train(plan, "gpt", *of_type, "--gradient-scale", "256", steps=2).stdout)
                    self.assertNotIn("left_out", small)

    def test_what_is_measured_makes_a_cluster(self):
        out, fitted = self.path / "samples.csv", self.path / "fitted.json"
        arguments = ["profile", "--model", self.model("gpt"), "--repeats", "1", "--out", out, "--devices"]
        if MPIRUN:
            result = subprocess.run([*MPIRUN, "-n", "4", HEDDLE, *map(str, arguments), "fast,fast,slow,slow"], capture_output=True, text=True, timeout=120)
        else:
            result = run(*arguments, "fast")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.refused(run(*arguments, "fast,slow"), "--devices: names the types of 2 processes, and there are 1")
        put = run("fit", "--samples", out, "--cluster", self.cluster, "--out", fitted, "--json")
        self.assertEqual(put.returncode, 0, put.stderr)
        told = json.loads(put.stdout)
        if MPIRUN:
            kinds = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}
            self.assertEqual({(c["collective"], c["ranks"]) for c in told["collectives"]}, {(kind, n) for kind in kinds for n in (2, 4)})
        self.assertEqual({o["device"] for o in told["operators"]}, {"fast", "slow"} if MPIRUN else {"fast"})
        self.assertLessEqual({"matmul", "normalisation", "elementwise"}, {o["class"] for o in told["operators"]})
        self.assertLessEqual({("linear", "forward"), ("linear", "backward")}, {(o.get("operator"), o.get("pass")) for o in told["operators"]})
        _, planned = self.plan("gpt", "--planner", "hap", cluster=fitted)
        self.assertIn("linear", {s.get("kind") for s in planned["steps"]})
        # A loss that needs all labels is measured with those of smaller batches too.
        of_decoder = run("profile", "--model", self.model("decoder"), "--repeats", "1", "--out", self.path / "decoder.csv", "--devices", "fast")
        self.assertEqual(of_decoder.returncode, 0, of_decoder.stderr)

    def test_bad_input(self):
        plan, content = self.plan("gpt", "--planner", "hap")
        self.refused(run("train", "--plan", plan, "--model", self.model("convolutions")), "plan.json")
        self.refused(run("train", "--plan", self.path / "none", "--model", self.model("gpt")), "none")
        if MPIRUN:
            result = self.train(plan, "gpt", ranks=3)
            told = [line for line in result.stderr.splitlines() if line.startswith("heddle: ")]
            self.assertEqual((result.returncode != 0, len(told)), (True, 1), result.stderr)
            self.assertIn("keeps 4 devices busy, and there are 3 processes", told[0])
        content["ratios"] = "no ratios"
        self.refused(run("train", "--plan", self.write("damaged.json", content), "--model", self.model("gpt")), "damaged.json")
        self.assertIn("--accumulate", run("help", "train").stdout)
        unknown = run("train", "--plan", plan, "--model", self.model("gpt"), "--optimizer", "lion")
        self.assertEqual((unknown.returncode, len(unknown.stderr.splitlines())), (2, 1), unknown.stderr)
        if MPIRUN:
            result = self.train(plan, "gpt", ranks=3)
            self.assertNotEqual(result.returncode, 0)
            told = [line for line in result.stderr.splitlines() if line.startswith("heddle: ")]
            self.assertEqual(len(told), 1, result.stderr)
            self.assertIn("keeps 4 devices busy, and there are 3 processes", told[0])


if __name__ == "__main__":
    unittest.main()
