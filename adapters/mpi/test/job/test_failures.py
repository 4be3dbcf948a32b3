"""A job of which one rank fails ends as a whole: in time, not with success, with one line of ours.

Usage: test_failures.py PROGRAM MPIRUN...
"""
import subprocess
import sys
import time
import unittest

PROGRAM, *MPIRUN = sys.argv[1:]
del sys.argv[1:]


def run(way, ranks):
    begun = time.monotonic()
    result = subprocess.run([*MPIRUN, "-n", str(ranks), PROGRAM, way], capture_output=True, text=True, timeout=100)
    return result, time.monotonic() - begun, [line for line in result.stderr.splitlines() if line.startswith("heddle: ")]


class Failures(unittest.TestCase):
    def fails(self, way, *fragments, seconds, ranks=3):
        result, took, lines = run(way, ranks)
        self.assertNotEqual(result.returncode, 0, result)
        self.assertEqual(len(lines), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, lines[0])
        self.assertLess(took, seconds, result.stderr)

    def test_all_is_well(self):
        result, _, lines = run("", 3)
        self.assertEqual((result.returncode, lines), (0, []), result.stderr)

    def test_a_rank_that_dies(self):
        self.fails("dies", "another rank has died", seconds=20)

    def test_a_rank_that_hangs(self):
        self.fails("hangs", "all-reduce of 100000 elements", "no end after 3 s", "hangs", seconds=40)

    def test_a_rank_that_throws(self):
        self.fails("throws", "there is no good way on", "rank 2", seconds=20)

    def test_a_rank_without_memory(self):
        self.fails("memory", "out of memory", "rank 2", seconds=20)

    def test_a_rank_that_makes_another_call(self):
        self.fails("another-call", "another rank", "does something else", seconds=40)

    def test_a_rank_whose_tensor_is_of_another_size(self):
        self.fails("disagrees", "all-reduce of", seconds=40)

    def test_a_rank_that_ends_early(self):
        self.fails("early", "another rank", "does something else", seconds=40)

    def test_a_rank_that_never_comes(self):
        self.fails("last-never-there", "MPI does not start", seconds=40)

    def test_a_first_rank_that_never_comes(self):
        self.fails("first-never-there", "MPI does not start", seconds=40)

    def test_ranks_with_different_plans(self):
        self.fails("plans", "ranks 0 and 2 differ in the plan: that and this", seconds=20)


if __name__ == "__main__":
    unittest.main()
