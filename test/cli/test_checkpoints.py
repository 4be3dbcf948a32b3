"""`heddle train --save` and `--resume`, and `heddle reshard`: training goes on by any plan, whatever has happened before.

Usage: test_checkpoints.py HEDDLE [MPIRUN...], from the repository root. Models come from Debian's PyTorch.
"""
import copy
import filecmp
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time
import unittest

from training_case import CLUSTER, HEDDLE, MPIRUN, TrainingCase, run

OPTIONS = ("--optimizer", "adamw", "--rate", "0.01", "--clip", "5", "--accumulate", "2")


def step_of(folder):
    return json.loads((folder / "checkpoint.json").read_text())["step"]


class Checkpoints(TrainingCase):
    def plans(self, name):
        """Of four devices by four planners, and of three by one: shards, stages and copies."""
        three = copy.deepcopy(CLUSTER)
        three["machines"][1]["count"] = 1
        made = {planner: self.plan(name, "--planner", planner, out=f"{planner}.json")[0] for planner in ("hap", "amp", "ditto")}
        made["three"] = self.plan(name, "--planner", "hap", out="three.json", cluster=self.write("three_devices.json", three))[0]
        if name == "gpt":
            made["stages"] = self.stages()[0]
        return made

    def losses(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["losses"]

    def go_on(self, losses, expected):
        self.assertEqual(len(losses), len(expected))
        for one, other in zip(losses, expected):
            self.assertAlmostEqual(one, other, delta=1e-9 * abs(other))

    def test_training_goes_on_by_other_plans(self):
        plans = self.plans("experts")
        whole = self.losses(self.train(plans["hap"], "experts", *OPTIONS, steps=12))
        folder = self.path / "saved"
        self.go_on(self.losses(self.train(plans["hap"], "experts", *OPTIONS, "--save", folder, steps=3)), whole[:3])
        again = self.losses(self.train(plans["hap"], "experts", *OPTIONS, "--resume", folder, steps=12))
        self.assertEqual(again, whole[3:])  # by the same plan, to the last bit
        steps = 3
        for planner in ("amp", "three", "ditto"):
            with self.subTest(planner=planner):
                checked = ("--check",) if planner == "amp" else ()
                result = self.train(plans[planner], "experts", *OPTIONS, *checked, "--resume", folder, "--save", folder, steps=steps + 3)
                self.go_on(self.losses(result), whole[steps:steps + 3])
                if checked:
                    self.assertLess(json.loads(result.stdout)["max_relative_difference"], 1e-9)
                steps += 3
                self.assertEqual(step_of(folder), steps)

    def test_training_goes_on_between_stages_and_other_plans(self):
        plans = self.plans("gpt")
        whole = self.losses(self.train(plans["hap"], "gpt", *OPTIONS, steps=8))
        folder = self.path / "saved"
        for steps, planner, ranks in ((2, "hap", None), (4, "stages", 4 if MPIRUN else None), (6, "three", None), (8, "stages", None)):
            resumed = ("--resume", folder) if steps > 2 else ()
            result = self.train(plans[planner], "gpt", *OPTIONS, *resumed, "--save", folder, ranks=ranks, steps=steps)
            self.go_on(self.losses(result), whole[steps - 2:steps])

    def test_training_goes_on_between_rounds_and_other_plans(self):
        plans = {"hap": self.plan("deep", "--planner", "hap", out="hap.json")[0], "rounds": self.rounds()[0]}
        whole = self.losses(self.train(plans["hap"], "deep", *OPTIONS, steps=6))
        folder = self.path / "saved"
        for steps, planner, ranks in ((2, "rounds", 4 if MPIRUN else None), (4, "hap", None), (6, "rounds", None)):
            resumed = ("--resume", folder) if steps > 2 else ()
            result = self.train(plans[planner], "deep", *OPTIONS, *resumed, "--save", folder, ranks=ranks, steps=steps)
            self.go_on(self.losses(result), whole[steps - 2:steps])

    def test_there_and_back_every_bit_is_the_same(self):
        plans = self.plans("gpt")
        first = self.path / "first"
        self.losses(self.train(plans["hap"], "gpt", "--precision", "float32", "--save", first, steps=2))
        here = first
        received = []
        for number, planner in enumerate(("three", "stages", "ditto", "hap", "hap")):
            there = self.path / str(number)
            result = run("reshard", "--from", here, "--plan", plans[planner], "--model", self.model("gpt"), "--to", there, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            told = json.loads(result.stdout)
            self.assertEqual((told["kept"], told["received"]), tuple(sum(r[of] for r in told["ranks"]) for of in ("kept", "received")))
            received.append(told["received"])
            here = there
        self.assertGreater(min(received[:4]), 0)
        self.assertEqual(received[4], 0)
        files = sorted(path.name for path in first.iterdir())
        self.assertEqual(sorted(path.name for path in here.iterdir()), files)
        self.assertEqual(filecmp.cmpfiles(first, here, files, shallow=False), (files, [], []))

    @unittest.skipUnless(MPIRUN, "there is no MPI")
    def test_a_rank_is_killed_and_three_go_on(self):
        plans = self.plans("gpt")
        whole = self.losses(self.train(plans["hap"], "gpt", *OPTIONS, steps=30))
        folder = self.path / "saved"
        job = subprocess.Popen([*MPIRUN, "-n", "4", HEDDLE, "train", "--plan", plans["hap"], "--model", self.model("gpt"), "--steps", "1000000",
                                "--save", folder, "--save-every", "5", *OPTIONS], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while not (folder / "checkpoint.json").exists():
                self.assertLess(time.monotonic(), end)
                self.assertIsNone(job.poll())
                time.sleep(0.01)
            ranks = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            self.assertEqual(len(ranks), 4)
            os.kill(int(ranks[2]), signal.SIGKILL)
            _, told = job.communicate(timeout=60)
        finally:
            job.kill()
            job.wait()
        self.assertNotEqual(job.returncode, 0)
        steps = step_of(folder)
        self.assertEqual(steps % 5, 0, told)
        result = self.train(plans["three"], "gpt", *OPTIONS, "--resume", folder, ranks=3, steps=steps + 8)
        whole = self.losses(self.train(plans["hap"], "gpt", *OPTIONS, steps=steps + 8)) if steps > 22 else whole
        self.go_on(self.losses(result), whole[steps:steps + 8])

    def test_killed_while_saving_and_a_full_disk_leave_the_last_checkpoint_whole(self):
        plans = self.plans("gpt")
        folder = self.path / "saved"
        saving = ("--save", folder, "--save-every", "1")
        self.losses(self.train(plans["hap"], "gpt", *saving, steps=2))
        last = 2
        for number in range(6):  # about every step is a save, so most of these kills are within one
            job = subprocess.Popen([HEDDLE, "train", "--plan", plans["hap"], "--model", self.model("gpt"), "--steps", "1000000", "--resume", folder, *saving],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(3 + number):  # two lines of heading, then steps
                job.stdout.readline()
            time.sleep(0.003 * number)
            job.kill()
            job.wait()
            job.stdout.close()
            whole = self.path / f"whole_{number}"
            result = run("reshard", "--from", folder, "--plan", plans["ditto"], "--model", self.model("gpt"), "--to", whole)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertGreaterEqual(step_of(folder), last)
            last = step_of(folder)
        self.assertGreater(last, 2)

        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        index = json.loads(before["checkpoint.json"])

        def full():
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
        result = subprocess.run([HEDDLE, "train", "--plan", plans["hap"], "--model", self.model("gpt"), "--steps", str(last + 2), "--resume", folder, *saving, "--json"],
                                capture_output=True, text=True, preexec_fn=full, restore_signals=False, timeout=120)  # so SIGXFSZ stays ignored
        self.refused(result, "safetensors: cannot be written: File too large")
        self.assertEqual(json.loads((folder / "checkpoint.json").read_text()), index)
        named = {name for name in before if f"-{index['save']}-" in name}
        for name in named:
            self.assertEqual((folder / name).read_bytes(), before[name])
        self.losses(self.train(plans["hap"], "gpt", "--resume", folder, *saving, steps=last + 1))
        left = {path.name for path in folder.iterdir()} - {"checkpoint.json"}
        self.assertTrue(all(f"-{index['save'] + 1}-" in name for name in left), left)

    def test_bad_checkpoints_are_refused_before_training(self):
        plan, _ = self.plan("gpt", "--planner", "hap")
        folder = self.path / "saved"
        self.losses(self.train(plan, "gpt", "--save", folder, steps=2))
        ranks = 4 if MPIRUN else None

        def refused(*fragments, options=(), model="gpt", plan=plan, steps=5):
            result = self.train(plan, model, "--resume", folder, *options, ranks=ranks, steps=steps)
            self.assertNotEqual(result.returncode, 0)
            told = [line for line in result.stderr.splitlines() if line.startswith("heddle: ")]
            self.assertEqual(len(told), 1, result.stderr)
            for fragment in fragments:
                self.assertIn(fragment, told[0])
        other, _ = self.plan("convolutions", "--planner", "hap", out="other.json")
        refused("checkpoint.json: ", "is no parameter of the model; the checkpoint is of the model gpt", model="convolutions", plan=other)
        refused("has made 2 steps, and --steps asks for 2", steps=2)
        refused("was trained by sgd, expected --optimizer adam", options=("--optimizer", "adam"))
        self.refused(self.train(plan, "gpt", "--save", folder), "has a checkpoint already")
        elsewhere = self.path / "elsewhere"
        shutil.copytree(folder, elsewhere)
        self.refused(self.train(plan, "gpt", "--save", elsewhere, "--resume", folder), "elsewhere: has a checkpoint already")
        self.refused(run("reshard", "--from", folder, "--plan", plan, "--model", self.model("gpt"), "--to", elsewhere), "has a checkpoint already")
        self.assertEqual(self.train(plan, "gpt", "--resume", folder, "--seed", "3").returncode, 2)
        self.assertEqual(self.train(plan, "gpt", "--save-every", "3").returncode, 2)
        file = folder / "parameters-1-0.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        refused("parameters-1-0.safetensors: ")
        file.unlink()
        refused("parameters-1-0.safetensors: cannot be read")
        (folder / "checkpoint.json").write_text("{")
        refused("checkpoint.json")


if __name__ == "__main__":
    unittest.main()
