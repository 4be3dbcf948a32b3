"""Bounds of plans of the shipped models on the shipped clusters, against plans of fewer choices: no bound is undercut, and what is cheaper among them is taken.

Usage: test_certificates.py HEDDLE, from the repository root.
"""
import concurrent.futures
import fractions
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE = ""
PLANNERS = {"hap": ("--planner", "hap"), "hap, overlapped": ("--planner", "hap", "--gradient-overlap"), "hidup": ("--planner", "hidup")}
FEWER_CHOICES = {"hidup": [("--labels-per-cut", 2, "--cuts", 1)]}
# Of pipelines the bound is one on all degrees, micro-batches and layers.
PIPELINE_PLANNERS = {"amp": [("--pipeline-degree", 1), ("--pipeline-degree", 2), ("--data-degree", 1)], "ditto": [("--micro-batch", 1), ("--micro-batch", 2), ("--method", "recover")]}
ROUNDING = 1 + 1e-9
DEARER = 1.045  # what a search that proves little may leave


def run(*arguments):
    return subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def shares(plan):
    """Of each cut factor, the devices' parts."""
    return {tuple(member): [fractions.Fraction(n, cut["atoms"]) for n in cut["counts"]] for cut in plan["cuts"] for member in cut["members"]}


def at_shares_of(plan, other):
    """`other`'s program at the shares of `plan`; none where its atoms are larger than those."""
    known = shares(plan)
    ratios = [fractions.Fraction(ratio).limit_denominator(10**6) for ratio in plan["ratios"]]  # of what the plan does not cut
    changed = dict(other, cuts=[])
    for cut in other["cuts"]:
        wanted = {tuple(known.get(tuple(member), ratios)) for member in cut["members"]}
        if len(wanted) > 1:
            return None
        counts = [part * cut["atoms"] for part in wanted.pop()]
        if any(n.denominator > 1 for n in counts):
            return None
        changed["cuts"].append(dict(cut, counts=[int(n) for n in counts]))
    return changed


class Certificates(unittest.TestCase):
    maxDiff = None
    at_equal_shares = 0  # plans compared so
    pipelines = 0  # of fewer choices

    def plan(self, *arguments, refusals=()):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "plan.json")
            planned = run("plan", *arguments, "--out", out)
            if planned.returncode == 0:
                return json.loads(out.read_text())
            self.assertIn(planned.returncode, (3, 4, *refusals), (arguments, planned.stderr))
            return None

    def cost(self, plan, cluster):
        """What it costs; none where it does not fit."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.json")
            path.write_text(json.dumps(plan))
            priced = run("cost", "--plan", path, "--cluster", cluster, "--json")
        return json.loads(priced.stdout)["cost"] if priced.returncode == 0 else None

    def undercut(self, model, cluster, planner):
        """What fewer choices make cheaper than they may be."""
        inputs = ("--model", model, "--cluster", cluster, *PLANNERS[planner])
        free = self.plan(*inputs)
        if free is None:
            return
        used = max(sum(terms.values()) for terms in free["memory"])
        for restriction in [("--memory-limit", int(0.9 * used)), *FEWER_CHOICES.get(planner, [])]:
            other = self.plan(*inputs, *restriction)
            if other is None:
                continue
            moved = at_shares_of(free, other)
            cost = moved and self.cost(moved, cluster)
            self.at_equal_shares += cost is not None
            for claim, least in (("global_lower_bound", other["cost"]), ("cost", other["cost"] * DEARER), ("lower_bound", cost)):
                if least is not None and free.get(claim, 0) > least * ROUNDING:
                    yield f"{model} {cluster} {planner} {restriction}: {claim} {free[claim]}, cost {least}"

    def undercut_pipeline(self, model, cluster, planner):
        """The same for pipelines."""
        inputs = ("--model", model, "--cluster", cluster, "--planner", planner)
        free = self.plan(*inputs)
        if free is None:
            return
        used = max(device["memory"] for device in free["devices"])
        for restriction in [("--memory-limit", int(0.9 * used)), *PIPELINE_PLANNERS[planner]]:
            other = self.plan(*inputs, *restriction, refusals=(1,))  # there may be no such degrees
            self.pipelines += other is not None
            for claim, part in (("lower_bound", 1), ("cost", DEARER)):
                if other is not None and free[claim] > other["cost"] * part * ROUNDING:
                    yield f"{model} {cluster} {planner} {restriction}: {claim} {free[claim]}, cost {other['cost']}"

    def cases(self, planners):
        """Every model with every planner, on every third cluster. Device groups have neither turns nor pipelines."""
        models = sorted(pathlib.Path("examples/models").glob("*.json.gz"))
        clusters = sorted(pathlib.Path("examples/clusters").glob("*.json"))
        every = [(i + k + n, (m, c, p)) for i, m in enumerate(models) for k, c in enumerate(clusters) for n, p in enumerate(planners)]
        return [(m, c, p) for place, (m, c, p) in every if place % 3 == 0 and (c.stem != "v100_p100_8x8" or p.startswith("hap"))]

    def none_undercut(self, undercut, cases):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            found = list(workers.map(lambda case: list(undercut(*case)), cases))
        self.assertEqual(sum(found, []), [])

    def test_shipped_pipelines(self):
        cases = self.cases(PIPELINE_PLANNERS)
        self.none_undercut(self.undercut_pipeline, cases)
        self.assertGreater(self.pipelines, len(cases))

    def test_shipped(self):
        cases = self.cases(PLANNERS)
        self.none_undercut(self.undercut, cases)
        self.assertGreater(self.at_equal_shares, len(cases) * 2 / 5)


if __name__ == "__main__":
    HEDDLE = sys.argv.pop(1)
    unittest.main()
