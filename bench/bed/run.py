#!/usr/bin/env python3
"""Plans beside measured iterations on unequal ranks and slow networks: `run.py HEDDLE --out FOLDER [--page PAGE] [--only CASES] [--smoke]`.

On every network and set of speeds of bed.json the ranks measure themselves (`heddle profile`), a cluster is fitted to that (`heddle fit`), and each plan is priced on this cluster (`heddle cost`)
and then trained by. Repeats of plans are interleaved. No number is fitted to what is evaluated. Others of the host may slow the processor down: a profile during which they do is made again, and a rank sleeps that much less. Needs root, HEDDLE with `heddle-train` beside it, an MPI, and Debian's PyTorch to make models.
It continues what FOLDER has of an earlier run of the same bed.json.
"""
import argparse
import hashlib
import json
import math
import pathlib
import re
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "adapters/libtorch"), str(HERE.parents[1] / "examples/models")]
import network  # noqa: E402

EVEN = "even data parallel"
A_STEP = r"^ *(\d+) +\S+ +(\d+\.\d+) "  # a line of `heddle train`: number, loss, seconds


def tell(*words):
    print(*words, file=sys.stderr, flush=True)


def export(out, sizes):
    import definitions
    import export_fx
    sizes = dict(sizes)
    module, inputs = getattr(definitions, sizes.pop("definition"))(**sizes)
    export_fx.write(export_fx.export(module, inputs, out.name.split(".")[0]), str(out))


def type_name(cores):
    return f"{cores:g} cores"


def base_cluster(cores):
    """A cluster with the right devices and links; its rates and bandwidths are replaced by what is measured."""
    return {"format": "heddle.cluster", "version": 1, "name": "bed",
            "device_types": [{"name": type_name(c), "memory": 4e9, "bandwidth": 1e9, "rates": {"float32": 1e9}} for c in sorted(set(cores))],
            "machines": [{"type": type_name(c), "count": 1} for c in cores],
            "links": {"intra": {"bandwidth": 1e9, "latency": 1e-4}, "inter": {"bandwidth": 1e7, "latency": 1e-4}}}


class NoPlan(Exception):
    """What heddle says of a command that it cannot do."""


class Runs:
    def __init__(self, heddle, out, config):
        self.heddle, self.out, self.config = heddle, out, config
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = out / "measured.json"
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {"bed": digest, "cases": {}}
        if self.known["bed"] != digest:
            sys.exit(f"{self.file} was measured by another bed.json")
        for name, sizes in config["models"].items():
            if not self.model(name).exists():
                export(self.model(name), sizes)

    def model(self, name):
        return self.out / f"{name}.json.gz"

    def call(self, *command):
        told = subprocess.run([self.heddle, *map(str, command)], capture_output=True, text=True)
        if told.returncode != 0:
            raise NoPlan(told.stderr.strip() or told.stdout.strip())
        return told.stdout

    def save(self):
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(self.known, indent=1) + "\n")
        beside.replace(self.file)

    def steadily(self, bed, what):
        """Returns what `what()` does while others leave the processor alone: of as many tries as it takes, or as there are, the steadiest."""
        best = math.inf
        for _ in range(self.config["tries"]):
            with bed.watched() as loops:
                made = what()
            alone, *_ = statistics.quantiles(loops)  # most of the time nobody else is there
            self.known["loop"] = min(alone, self.known.get("loop", alone))
            if (slowness := statistics.median(loops)) < best:
                best, result = slowness, made
            if best <= self.config["steady"] * self.known["loop"]:
                return result
            tell(f"the processor is {slowness / self.known['loop']:.2f} times as slow as it is alone: once more")
        self.known["unsteady"] = self.known.get("unsteady", 0) + 1
        return result

    def profile(self, out, bed, what):
        """Samples of what the ranks of a bed measure, as lines behind their header."""
        if not out.exists():
            beside, options = out.with_suffix(".new"), self.config["profile"]

            def measure():
                bed.job(self.heddle, "profile", *what, "--devices", "rank", "--out", beside, *self.config["kernels"],
                        "--repeats", options["repeats"], "--least-seconds", options["least_seconds"], time_out=7200)
                return beside.read_text()

            with bed:
                samples = self.steadily(bed, measure)
            beside.write_text(samples)
            beside.replace(out)
        return out.read_text().splitlines()

    def cluster(self, model, megabits, speeds):
        """The cluster that is fitted to measurements: of this model's operators on the whole processor, of which a rank with a share takes as many times as long, and of collectives on this network at these speeds."""
        cores = self.config["cores"][speeds]
        name = self.out / f"{model}-{megabits}-{speeds}".replace(" ", "-")
        fitted, base, samples = (pathlib.Path(f"{name}.{kind}") for kind in ("cluster.json", "base.json", "samples.csv"))
        if fitted.exists():
            return fitted
        all_samples = self.profile(self.out / f"collectives-{megabits}-{speeds}.csv".replace(" ", "-"), network.Bed(megabits, cores), [])
        header, *operators = self.profile(self.out / f"operators-{model}.csv", network.Bed(megabits, [1]), ["--model", self.model(model)])
        columns = header.split(",")
        device, seconds = columns.index("device"), columns.index("seconds")
        for share in sorted(set(cores)):
            for line in operators:
                values = line.split(",")
                values[device], values[seconds] = type_name(share), repr(float(values[seconds]) / share)
                all_samples.append(",".join(values))
        samples.write_text("\n".join(all_samples) + "\n")
        base.write_text(json.dumps(base_cluster(cores)))
        self.call("fit", "--samples", samples, "--cluster", base, "--ranks", len(cores), "--out", fitted)
        return fitted

    def with_speeds_of(self, cluster, other):
        """The cluster whose devices are all taken for the first of another one."""
        c, (like, *_) = json.loads(cluster.read_text()), json.loads(other.read_text())["device_types"]
        c["device_types"] = [{**like, "name": t["name"]} for t in c["device_types"]]
        out = pathlib.Path(f"{cluster}.blind")
        out.write_text(json.dumps(c))
        return out

    def plan(self, model, megabits, speeds, name):
        """Plans, and prices the plan on the cluster that is measured. Returns the file and the seconds."""
        what = self.config["plans"][name]
        other = what.get("planned_with", {})
        planned_on = self.cluster(model, other.get("megabits_per_second", megabits), speeds)
        if "cores" in other:
            planned_on = self.with_speeds_of(planned_on, self.cluster(model, megabits, other["cores"]))
        out = self.out / f"{model}-{megabits}-{speeds}-{name}.plan.json".replace(" ", "-")
        trace = ["--trace", out.with_suffix(".trace.json")] if name == "chosen" else []
        self.call("plan", "--model", self.model(model), "--cluster", planned_on, *self.config["training"], *what["options"], *trace, "--out", out)
        is_pipeline = json.loads(out.read_text())["format"] == "heddle.pipeline_plan"  # whose price needs the model
        told = json.loads(self.call("cost", "--plan", out, *(["--model", self.model(model)] if is_pipeline else []), "--cluster",
                                    self.cluster(model, megabits, speeds), "--json"))
        return out, told["cost"]

    def trace(self, bed, model, plan):
        """Writes a measured trace of two steps beside the simulated one: operations of MPI, and waits for them; the rest is computation."""
        events = plan.with_suffix(".events")
        bed.job(self.heddle, "train", "--plan", plan, "--model", self.model(model), *self.config["kernels"], *self.config["training"], "--steps", 2, "--json",
                time_out=3600, environment={"HEDDLE_TRACE": events})
        all_events = []
        for rank in range(len(bed.cores)):
            of_rank = pathlib.Path(f"{events}.{rank}")
            all_events += [json.loads(line) for line in of_rank.read_text().splitlines()]
            of_rank.unlink()
        begin = min(e["ts"] for e in all_events)
        for e in all_events:
            e["ts"] -= begin
        plan.with_suffix(".measured_trace.json").write_text(json.dumps({"traceEvents": all_events}))

    def case(self, model, megabits, speeds):
        """Measures one model on one network at one set of speeds by all plans, in turns."""
        key = f"{model}, {megabits} Mbit/s, {speeds}"
        if key in self.known["cases"]:
            return
        cores = self.config["cores"][speeds]
        self.cluster(model, megabits, speeds)
        plans, left_out = {}, {}
        for name, what in self.config["plans"].items():
            if what.get("planned_with") in ({"cores": speeds}, {"megabits_per_second": megabits}):
                continue  # it is the chosen one
            try:
                plans[name] = self.plan(model, megabits, speeds, name)
            except NoPlan as e:  # a shape that cannot be: said in the results
                left_out[name] = str(e).splitlines()[-1]
        seconds = {name: [] for name in plans}
        with network.Bed(megabits, cores, self.known["loop"]) as bed:
            for repeat in range(self.config["repeats"]):
                order = list(plans)[repeat % len(plans):] + list(plans)[:repeat % len(plans)]
                for name in order:
                    told = bed.job(self.heddle, "train", "--plan", plans[name][0], "--model", self.model(model), *self.config["kernels"], *self.config["training"],
                                   "--steps", self.config["steps"], time_out=3600, limit_from=A_STEP)
                    # The first step finds caches and connections cold, and shares of the processor begin in the second.
                    seconds[name] += [float(s) for n, s in re.findall(A_STEP, told, re.MULTILINE) if int(n) > 2]
                    tell(f"{key}, {name}: predicted {plans[name][1]:.3f}, measured {statistics.median(seconds[name]):.3f} s")
            self.trace(bed, model, plans["chosen"][0])
        self.known["cases"][key] = {"model": model, "megabits": megabits, "speeds": speeds, "left_out": left_out,
                                    "plans": {name: {"predicted": plans[name][1], "seconds": seconds[name]} for name in plans}}
        self.save()

    def all(self, only):
        for model in self.config["models"]:
            for megabits in self.config["megabits_per_second"]:
                for speeds in self.config["cores"]:
                    if only in f"{model}, {megabits} Mbit/s, {speeds}":
                        self.case(model, megabits, speeds)


def pearson(pairs):
    x, y = zip(*pairs)
    mx, my = statistics.fmean(x), statistics.fmean(y)
    both = sum((a - mx) * (b - my) for a, b in pairs)
    return both / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def summary(known):
    """The figures that the aims are about."""
    pairs, near, promised = [], 0, []
    for case in known["cases"].values():
        if "chosen" not in case["plans"]:
            raise NoPlan(case["left_out"]["chosen"])
        plans = {name: (p["predicted"], statistics.median(p["seconds"])) for name, p in case["plans"].items()}
        pairs += plans.values()
        near += plans["chosen"][1] <= 1.03 * min(measured for _, measured in plans.values())
        if EVEN in plans and case["speeds"] != "equal":
            promised.append((plans[EVEN][0] / plans["chosen"][0], plans[EVEN][1] / plans["chosen"][1]))
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    return {"plans": len(pairs), "cases": len(known["cases"]), "pearson": pearson(pairs) if len(pairs) > 2 else None, "mean_error": statistics.fmean(errors),
            "worst_error": max(errors), "chosen_within_3_percent": near, "promised": promised}


def number(x):
    return "-" if x is None else f"{x:.3f}"


def page(known, config):
    s = summary(known)
    of_bed = math.prod(len(config[what]) for what in ("models", "megabits_per_second", "cores"))
    lines = ["# The bed: predicted and measured iterations", "",
             "Ranks in network namespaces, one thread each, with a share of one processor (a rank sleeps after what it computed) and a link of limited rate (`tc tbf`). `bench/bed/run.py` measures what is in `bench/bed/bed.json`,",
             "which was fixed before the first run, and writes this page. Clusters are fitted to `heddle profile` alone; nothing is fitted to the iterations below, but the first case was the one that the bed itself was tried on. Of each plan the median, the least and the most of all steps but a run's first two.",
             f"What runs on the core's other thread, the network's part of the bed and others of the host, slows the processor down by up to a half. Two short products tell by how much: a rank sleeps that much less, and a profile is made again, up to {config['tries']} times in all,",
             f"if they take over {100 * config['steady'] - 100:.0f} % longer during half of it than alone; of {known.get('unsteady', 0)} that never were steady the steadiest counts.", "",
             "What collectives take beside their transfers is predicted too short: ranks start them, and are late for them where another rank has the processor. The more collectives a plan has, the longer its iterations are than predicted.", "",
             f"{s['plans']} plans in {s['cases']} of {of_bed} cases: Pearson's correlation {number(s['pearson'])} (aim 0.97), mean error {100 * s['mean_error']:.1f} % (aim 8 %), worst {100 * s['worst_error']:.0f} %;"
             f" the chosen plan is the fastest, or within 3 % of it, in {s['chosen_within_3_percent']} of {s['cases']}.", ""]
    if s["promised"]:
        kept = sum(abs(measured / promised - 1) <= 0.1 for promised, measured in s["promised"])
        lines += [f"On unequal ranks the chosen plan beats even data parallelism by what it promised, within 10 %, in {kept} of {len(s['promised'])} cases.", ""]
    for key, case in known["cases"].items():
        cores = ", ".join(f"{c:g}" for c in config["cores"][case["speeds"]])
        lines += [f"## {key} ({cores} cores)", "", "| plan | predicted, s | measured, s | least to most | error |", "|---|---:|---:|---:|---:|"]
        for name, p in case["plans"].items():
            median = statistics.median(p["seconds"])
            lines.append(f"| {name} | {p['predicted']:.3f} | {median:.3f} | {min(p['seconds']):.3f} to {max(p['seconds']):.3f} | {100 * (p['predicted'] / median - 1):+.1f} % |")
        lines += [""] + [f"Left out: {name} ({why})." for name, why in case["left_out"].items()] + ([""] if case["left_out"] else [])
    return "\n".join(lines).rstrip() + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("heddle")
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--page", type=pathlib.Path)
    arguments.add_argument("--only", default="", help="the cases whose names have this text, such as 'gpt, 300'; others are kept as they are")
    arguments.add_argument("--smoke", action="store_true", help="one small model on one network by two plans, to see that all of it runs")
    a = arguments.parse_args()
    if reason := network.why_impossible():
        print(f"skipped: {reason}")
        sys.exit(77)
    config = json.loads((HERE / "bed.json").read_text())
    if a.smoke:
        small = {**config["models"]["gpt"], "layers": 1, "batch": 8, "length": 16, "vocabulary": 64, "d": 64, "ff": 128, "heads": 4}
        config = {**config, "models": {"gpt": small}, "megabits_per_second": [300], "cores": {"4 to 1": config["cores"]["4 to 1"]}, "steps": 3, "repeats": 1, "tries": 1,
                  "plans": {name: config["plans"][name] for name in ("chosen", EVEN)}, "profile": {"repeats": 1, "least_seconds": 0.02}}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a bed that is left is taken down
    runs = Runs(str(pathlib.Path(a.heddle).resolve()), a.out.resolve(), config)
    runs.all(a.only)
    print(json.dumps(summary(runs.known), indent=1))
    if a.page:
        a.page.write_text(page(runs.known, config))


if __name__ == "__main__":
    main()
