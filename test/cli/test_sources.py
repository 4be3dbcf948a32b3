"""The same networks through torch.fx, TorchScript and torch.export, and what the command line says of modules that it cannot take.

Usage: test_sources.py HEDDLE, from the repository root; needs PyTorch. The exported graphs are committed: Debian's PyTorch has no torch.export."""
import json
import shutil
import subprocess
import sys
import unittest
import zipfile

try:
    import torch
except ImportError:
    sys.exit(77)

from command_line import CLUSTER, CommandLine, HEDDLE, run

SOURCES = "adapters/libtorch/test/sources"
sys.path[:0] = ["adapters/libtorch", SOURCES]
import export_fx  # noqa: E402
import networks  # noqa: E402

CLUSTERS = (CLUSTER, "examples/clusters/v100x2_p100x6.json")
ADD_UP = {"separate", "fused", "module", "experts", "encoder"}  # networks whose losses add up over micro-batches


def options_of(inputs):
    """The inputs as the command line takes them."""
    return [text for name, t in inputs.items() for text in ("--input", f"{name}={'x'.join(map(str, t.shape))}:{str(t.dtype).removeprefix('torch.')}")]


class Sources(CommandLine):
    def traced(self, name):
        """A TorchScript file of a network, and the options that name its inputs."""
        module, inputs = networks.network(name)
        path = self.path / f"{name}.ts"
        torch.jit.trace(module, tuple(inputs.values()), check_trace=False).save(str(path))
        return path, options_of(inputs)

    def read(self, path, *options):
        """What computes, by kind: views may be written in other ways."""
        shown = run("model", path, *options, "--json")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""), shown)
        found = json.loads(shown.stdout)
        self.assertEqual((found["without_rule"], found["warnings"]), ([], []))
        numbers = {kind["kind"]: {key: kind[key] for key in ("count", "forward_flops", "backward_flops")} for kind in found["kinds"]}
        return {kind: values for kind, values in numbers.items() if values["forward_flops"] > 0}

    def cost(self, path, cluster, *options, planner="hap"):
        planned = run("plan", "--planner", planner, "--model", path, "--cluster", cluster, "--no-times", "--json", *options)
        self.assertEqual((planned.returncode, planned.stderr), (0, ""), planned)
        return json.loads(planned.stdout)["cost"]

    def test_same_networks(self):
        """The same operators of the catalogue and equally cheap plans."""
        for name in networks.NETWORKS:
            fx = self.path / f"{name}.json"
            export_fx.write(export_fx.export(*networks.network(name), name), str(fx))
            script, inputs = self.traced(name)
            exported = f"{SOURCES}/exported/{name}.pt2.json.gz"
            expected = self.read(fx)
            if name == "experts":
                self.assertEqual(expected["routed_experts"]["count"], 1)
            for path, options in ((script, inputs), (exported, [])):
                with self.subTest(str(path)):
                    self.assertEqual(self.read(path, *options), expected)
            for cluster in CLUSTERS:
                cost = self.cost(fx, cluster)
                for path, options in ((script, inputs), (exported, [])):
                    with self.subTest(f"{path} on {cluster}"):
                        self.assertLessEqual(abs(self.cost(path, cluster, *options) - cost), 1e-9 * cost)
                if name in ADD_UP:
                    with self.subTest(f"{exported} on {cluster} in turns"):
                        cost = self.cost(fx, cluster, planner="hidup")
                        self.assertLessEqual(abs(self.cost(exported, cluster, planner="hidup") - cost), 1e-9 * cost)

    def test_wide_cuts(self):
        """Where all forms are too many, those that few cheap programs need are enough: DeBERTa's vocabulary is cut, though its projections are used twice."""
        planned = run("plan", "--planner", "hap", "--model", "bench/todays_models/deberta_v3.pt2.gz", "--cluster", "examples/clusters/h100x16_nvlink.json", "--json")
        self.assertEqual((planned.returncode, planned.stderr), (0, ""), planned)
        summary = json.loads(planned.stdout)
        self.assertLess(summary["cost"], 1.01 * summary["lower_bound"])

    def test_torchscript_commands(self):
        path, inputs = self.traced("encoder")
        plan = self.path / "plan.json"
        planned = run("plan", "--planner", "hap", "--model", path, *inputs, "--cluster", CLUSTER, "--no-times", "--json", "--out", plan)
        self.assertEqual((planned.returncode, planned.stderr), (0, ""), planned)
        verified = run("verify", "--plan", plan, "--model", path, *inputs, "--cluster", CLUSTER, "--shrink", "--json")
        self.assertEqual((verified.returncode, verified.stderr), (0, ""), verified)
        self.assertLess(json.loads(verified.stdout)["max_relative_error"], 1e-10)
        pipeline = run("plan", "--planner", "amp", "--model", path, *inputs, "--cluster", CLUSTER, "--out", plan)
        self.assertEqual((pipeline.returncode, pipeline.stderr), (0, ""), pipeline)
        priced = run("cost", "--plan", plan, "--model", path, *inputs, "--cluster", CLUSTER)
        self.assertEqual((priced.returncode, priced.stderr), (0, ""), priced)
        other = [text.replace("64x", "32x") for text in inputs]
        changed = run("cost", "--plan", plan, "--model", path, *other, "--cluster", CLUSTER)
        self.assertTrue(changed.returncode == 1 or "has changed since the plan was made" in changed.stderr, changed)

    def test_refused_inputs(self):
        path, inputs = self.traced("encoder")
        self.refused(run("model", path), "--input: is missing for 'x'", "x, target", "--input x=4x128:int64")
        self.refused(run("model", path, *inputs[:2]), "--input: is missing for 'target'")
        self.refused(run("model", path, *inputs, "--input", "mask=4"), "--input: 'mask' is no argument of the module's forward, which takes x, target")
        self.refused(run("model", path, *inputs, "--input", "x=4"), "--input: 'x=4' gives an input a second time")
        for text in ("x", "=4", "x=4x", "x=x4", "x=4x-1", "x=0", "x=4:int", "x=4 x4", "x=99999999999999999999"):
            with self.subTest(text):
                self.refused(run("model", path, "--input", text), f"--input: '{text}' is no input, expected NAME=SIZES")
        self.refused(run("model", path, "--input", "x=64x32x100", *inputs[2:]), path.name)
        self.refused(run("model", f"{SOURCES}/exported/gpt.pt2.json.gz", *inputs), "--input: is for TorchScript modules")
        self.refused(run("plan", "--planner", "hap", "--model", path, "--cluster", CLUSTER), "--input: is missing for 'x'")
        broken = self.path / "broken.ts"
        with zipfile.ZipFile(broken, "w") as archive:
            archive.writestr("m/code/m.py", "")
            archive.writestr("m/constants.pkl", "")
        self.refused(run("model", broken), "broken.ts")

    def test_without_libtorch(self):
        """The command alone, as where it was built without libtorch."""
        path, inputs = self.traced("encoder")
        alone = self.path / "heddle"
        shutil.copy(HEDDLE, alone)
        self.refused(subprocess.run([alone, "model", path, *inputs], capture_output=True, text=True, timeout=120), "is a TorchScript module, for which heddle-torchscript is missing", "export_pt2.py")


if __name__ == "__main__":
    unittest.main()
