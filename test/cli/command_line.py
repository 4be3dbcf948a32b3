"""What tests of the command line share: running it, and files of their own. The first argument is the executable."""
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HEDDLE = str(pathlib.Path(sys.argv.pop(1)).resolve())
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

    def planned(self, *arguments):
        """The plan's path, and what `heddle plan --json` prints of it, after the plan was verified and priced."""
        out = self.path / "planned.json"
        model = () if "--model" in arguments else ("--model", MODEL)
        result = run("plan", *(() if "--planner" in arguments else ("--planner", "hap")), *model, *arguments, "--out", out, "--json")
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

    def example(self, page):
        """The JSON document of a page."""
        text = pathlib.Path(page).read_text()
        return self.write(pathlib.Path(page).stem + ".json", text.split("```json\n")[1].split("```")[0])

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
