"""The command line as a person meets it: exit statuses, one line for bad input, files whole or not at all.

Usage: test_cli.py HEDDLE, from the repository root.
"""
import contextlib
import gzip
import json
import os
import pathlib
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from command_line import CLUSTER, CommandLine, HEDDLE, MODEL, run


class Commands(CommandLine):
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
        for command in (("model", path), ("plan", "--planner", "hap", "--model", path, "--cluster", CLUSTER, "--out", out), ("cost", "--plan", out, "--cluster", CLUSTER),
                        ("verify", "--plan", out, "--model", path, "--shrink"), ("plan", "--model", path, "--cluster", CLUSTER, "--planner", "amp", "--layers", "names"),
                        ("plan", "--planner", "hap", "--model", path, "--cluster", CLUSTER, "--pin", "x\x1b[31m=partial"), ("model", self.path / "absent\x1b[31m"), ("model", "--\x1b[31m")):
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
        for command in ((b"model", place), (b"plan", b"--planner", b"hap", b"--model", place, b"--cluster", CLUSTER.encode())):
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
        self.assertEqual(run("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out).returncode, 0)
        self.refused(run("cost", "--plan", out, "--cluster", "examples/clusters/v100x2_p100x6.json"), "plan.json", "v100x2_p100x6.json", "has 8 devices, the plan is for 4, expected as many")
        model = json.loads(pathlib.Path("examples/formats/model.json").read_text())
        model["rules"]["my.scale"] = "(b d)\0, (d) -> (b d)"
        self.refused(run("model", self.write("nul.json", model)), "nul.json: rules['my.scale']: index rule '(b d)?, (d) -> (b d)', character 6: expected '->'")

    def test_unwritable_output(self):
        for option in ("--out", "--trace"):
            for place in (self.path / "no" / "plan.json", self.path):
                start = time.monotonic()
                self.refused(run("plan", "--planner", "hap", "--model", "examples/models/gpt2_12.json.gz", "--cluster", CLUSTER, option, place), str(place), "cannot be written")
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
        planned = run("plan", "--planner", "hap", "--model", MODEL, "--cluster", out, "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)

        pairs = json.loads(pathlib.Path(CLUSTER).read_text())
        pairs["machines"] = [{"type": "P100", "devices": 2, "count": 3}]
        pairs["links"]["intra"] = {"bandwidth": 1e10, "latency": 1e-6}
        inside = run("fit", "--samples", samples, "--cluster", self.write("pairs.json", pairs), "--out", out)
        self.assertEqual(inside.returncode, 0, inside.stderr)
        self.assertIn("collectives of all 6 devices were not measured", inside.stderr)
        cluster = json.loads(out.read_text())
        self.assertNotIn("collectives", cluster) # there are six devices
        self.assertEqual(cluster["collectives_inside"]["devices"], 2)
        self.assertAlmostEqual(cluster["collectives_inside"]["collectives"]["all_reduce"]["seconds_per_byte"], 1e-9, delta=1e-16)

        lines = ["what,device,ranks,dtype,flops,bytes,seconds,operator,pass,bytes_beside,kernels_beside,axis"]
        lines += [row + ",,,,," for row in rows[1:7]] + [f"all_reduce,,{k},,,{n},{2e-4 + k * 1e-9 * n},,,,,machines" for k in (2, 3) for n in (1e4, 1e6, 1e8)]
        lines += [f"all_gather,,3,,,{n},{2e-4 + n / 1.5e9},,,,,machines" for n in (1e4, 1e6, 1e8)]
        across = run("fit", "--samples", self.write("lines.csv", "\n".join(lines)), "--cluster", self.path / "pairs.json", "--out", out)
        self.assertEqual(across.returncode, 0, across.stderr)
        self.assertIn("all_reduce across 3 machines", across.stdout)
        cluster = json.loads(out.read_text())
        self.assertEqual((cluster["collectives_across"]["machines"], cluster["collectives_inside"]["devices"]), (3, 2))
        self.assertAlmostEqual(cluster["collectives_across"]["collectives"]["all_reduce"]["seconds_per_byte"], 3e-9, delta=1e-16)
        self.assertAlmostEqual(cluster["links"]["inter"]["bandwidth"], 1e9, delta=1e2) # two of three parts pass it
        self.assertAlmostEqual(cluster["links"]["inter"]["latency"], 1e-4, delta=1e-10)
        pairs["machines"][0]["count"] = 2
        fewer = run("fit", "--samples", self.path / "lines.csv", "--cluster", self.write("fewer.json", pairs), "--out", out)
        self.assertIn("collectives were measured across 3 machines, the cluster has 2: they are left out", fewer.stderr)
        self.assertNotIn("collectives_across", json.loads(out.read_text()))

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
        self.assertEqual(run("plan", "--planner", "hap", *inputs, "--out", plan).returncode, 0)
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
        self.into_full_device("plan", "--planner", "hap", *inputs, "--out", plan, "--trace", trace, "--json")
        self.into_full_device("plan", "--planner", "amp", "--profile", self.example("docs/reference/layer_profiles.md"), "--out", plan)
        self.into_full_device("fit", "--samples", "examples/formats/samples.csv", "--out", plan)
        (self.path / "layer_profiles.json").unlink()
        self.refused(run("plan", "--planner", "hap", *inputs, "--out", plan, "--trace", "/dev/full"), "/dev/full: cannot be written")
        self.assertEqual(list(self.path.iterdir()), [])
        plan.write_text("as it was")
        self.into_full_device("plan", "--planner", "hap", *inputs, "--out", plan)
        self.refused(run("plan", "--planner", "hap", *inputs, "--out", plan, "--trace", "/dev/full"), "/dev/full")
        self.assertEqual((plan.read_text(), len(list(self.path.iterdir()))), ("as it was", 1))

    def test_a_reader_that_leaves_early(self):
        out = self.path / "plan.json"
        process = subprocess.Popen([HEDDLE, "plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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
        for command in ("plan", "verify", "cost", "search", "fit", "model", "train", "profile", "recover", "reshard", "completion", "help"):
            helped = run("help", command)
            self.assertLessEqual(max(map(len, helped.stdout.splitlines())), 80, helped.stdout)
            self.assertEqual((helped.returncode, helped.stderr, helped.stdout), (0, "", run(command, "--help").stdout))
            self.assertIn(f"heddle {command}", helped.stdout)
            self.assertIn(f"\n  {command} ", run("help").stdout)
        plan = run("help", "plan").stdout
        for words in ("--memory-limit BYTES", "--time-limit SECONDS", "\nOptions of the planner ditto\n", "of sgd, momentum, adam)", "(2 to 64, default", "(default 16)", "(default 30)"):
            self.assertIn(words, plan)
        raw = run("help", "plan", "--\x1b[31mred")
        self.assertEqual(raw.returncode, 2)
        self.assertNotIn("\x1b", raw.stderr)

    def named(self):
        """The options of each command, as its help lists them."""
        commands = re.findall(r"^  (\w+) ", run("help").stdout.split("Commands")[1], re.MULTILINE)
        return {command: re.findall(r"^  (--[\w-]+)", run("help", command).stdout, re.MULTILINE) for command in commands}

    def test_completion(self):
        for shell, check in (("bash", ("bash", "-n")), ("zsh", ("zsh", "-n")), ("fish", ("fish", "--no-execute"))):
            script = run("completion", shell).stdout
            for command, options in self.named().items():
                for option in options:
                    self.assertIn(f" -l {option[2:]} " if shell == "fish" else option, script, (shell, command))
            if shutil.which(check[0]):
                self.assertEqual(subprocess.run([*check, self.write(f"heddle.{shell}", script)], capture_output=True).stderr, b"")

        def completed(*words):
            typed = " ".join(f"'{w}'" for w in ("heddle", *words))
            asked = f"{run('completion', 'bash').stdout}COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _heddle; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            return subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout.split()

        named = self.named()
        self.assertEqual(completed(""), [*named])
        self.assertEqual(completed("ver"), ["verify"])
        self.assertEqual(completed("help", "ver"), ["verify"])
        self.assertEqual(completed("help", "verify", ""), [])
        self.assertEqual(completed("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(completed("plan", "--"), named["plan"])
        self.assertEqual(completed("plan", "--planner", ""), ["hap", "hidup", "amp", "ditto", "joint"])
        self.assertEqual(completed("train", "--planner", ""), [])  # no option of it
        self.assertEqual(completed("plan", "--out", "pl"), [])  # a file, which bash itself completes
        self.assertEqual(run("completion", "csh").returncode, 2)

    def test_manual_page(self):
        page = run("help", "--man").stdout
        if shutil.which("groff"):
            shown = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            for command, options in self.named().items():
                self.assertIn(f"heddle {command}\n", shown.stdout)
                for option in options:
                    self.assertRegex(shown.stdout, rf"\n +{option}\b")

    def test_colour(self):
        command = ("plan", "--planner", "hap", "--model", MODEL, "--cluster", CLUSTER, "--no-times")

        def on_a_terminal(**environment):
            leader, follower = pty.openpty()
            fits = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **environment}
            process = subprocess.Popen([HEDDLE, *command], stdin=follower, stdout=follower, stderr=subprocess.DEVNULL, env=fits)
            os.close(follower)
            shown = b""
            with contextlib.suppress(OSError):  # which ends it
                while part := os.read(leader, 65536):
                    shown += part
            os.close(leader)
            self.assertEqual(process.wait(), 0)
            return shown.decode().replace("\r\n", "\n")

        plain, coloured = run(*command).stdout, on_a_terminal()
        self.assertIn("\x1b[1m", coloured)
        self.assertEqual(re.sub(r"\x1b\[[\d;]*m", "", coloured), plain)
        self.assertEqual(on_a_terminal(NO_COLOR="1"), plain)
        self.assertEqual(on_a_terminal(TERM="dumb"), plain)

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


if __name__ == "__main__":
    unittest.main()
