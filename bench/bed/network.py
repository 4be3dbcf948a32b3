"""Machines of the bed: network namespaces with a link of limited rate each, and a share of one processor for each rank.

All ranks compute on the last processor, one at a time: on processors of their own they would slow each other down where these are threads of one core. Everything else, MPI's calls too, runs on the others. A rank sleeps after it has computed until it has taken as long as with its share (`rank.cpp`): a quota of the
scheduler's would stop it for the rest of a period of milliseconds, at every step of a collective too, as no slow device does. Everything that is made is named after this process, and is removed when a `Bed` is left.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

BURST = 0.25e-3  # seconds of a link's rate that it passes at once, and at least two large packets


def run(*command, check=True):
    return subprocess.run([str(c) for c in command], check=check, capture_output=True, text=True)


def why_impossible():
    """A sentence that says why there can be no bed here, or nothing."""
    if os.geteuid() != 0:
        return "the bed needs root, for network namespaces"
    if len(os.sched_getaffinity(0)) < 2:
        return "the bed needs two processors, one for its ranks"
    for tool in ("ip", "tc", "mpicxx", "mpirun", "nsenter", "taskset", "unshare"):
        if not shutil.which(tool):
            return f"the bed needs the command {tool}"
    name = f"heddle-bed-try-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        try:
            run("ip", "-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "one", "root", "tbf", "rate", "100mbit", "burst", "4096", "latency", "100ms")
        finally:
            run("ip", "netns", "del", name)
    except subprocess.CalledProcessError as e:
        return f"the bed needs network namespaces with tbf: {' '.join(e.cmd)}: {e.stderr.strip()}"
    return None


class Bed:
    """Ranks in namespaces of their own, joined by a bridge: rank k has `cores[k]` of the processor and a link of `megabits`.
    Two short products that take longer than `loop` seconds tell how much others slow the processor down; a rank is none the slower for that."""

    def __init__(self, megabits, cores, loop=0):
        self.megabits, self.cores, self.loop = megabits, cores, loop
        self.name = f"hb{os.getpid() % 100000}"
        *self.others, self.processor = sorted(os.sched_getaffinity(0))

    def __enter__(self):
        self.made = contextlib.ExitStack()
        try:
            self.make()
        except BaseException:
            self.made.close()
            raise
        return self

    def __exit__(self, *_):
        self.made.close()

    def make(self):
        self.folder = pathlib.Path(self.made.enter_context(tempfile.TemporaryDirectory(prefix="heddle-bed-")))
        run("ip", "link", "add", self.name, "type", "bridge")
        self.made.callback(run, "ip", "link", "del", self.name)
        run("ip", "address", "add", "10.77.0.254/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        for k, cores in enumerate(self.cores):
            space, outside, inside = f"{self.name}n{k}", f"{self.name}o{k}", f"{self.name}i{k}"
            run("ip", "netns", "add", space)
            self.made.callback(run, "ip", "netns", "del", space)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space)
            self.made.callback(run, "ip", "link", "del", outside)  # a namespace removes its own later
            run("ip", "link", "set", outside, "master", self.name)
            run("ip", "link", "set", outside, "up")
            run("ip", "-n", space, "address", "add", f"10.77.0.{k + 1}/24", "dev", inside)
            for device in ("lo", inside):
                run("ip", "-n", space, "link", "set", device, "up")
            limit = ("root", "tbf", "rate", f"{self.megabits}mbit", "burst", max(4096, round(self.megabits * 1e6 / 8 * BURST)), "latency", "400ms")
            run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", inside, *limit)
            run("tc", "qdisc", "add", "dev", outside, *limit)
            # What the system does for packets is no rank's work, nor a slow rank's slowly: it is done on the other processors.
            mask = f"{sum(1 << processor for processor in self.others):x}"
            for where, device in ((("ip", "netns", "exec", space), inside), ((), outside)):
                run(*where, "sh", "-c", f"echo {mask} > /sys/class/net/{device}/queues/rx-0/rps_cpus")
            # Segments of one packet each, as on a real link: the limit counts what passes at once.
            for where, device in ((("ip", "netns", "exec", space), inside), ((), outside)):
                if shutil.which("ethtool"):
                    run(*where, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off", check=False)
        self.library = self.folder / "rank.so"
        run("mpicxx", "-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", pathlib.Path(__file__).with_name("rank.cpp"), "-o", self.library)
        self.limited = self.folder / "limited"  # once there is this file ranks have their shares
        self.agent = self.script("agent", f'''host=$1; shift; k=$(( ${{host##*.}} - 1 ))
export TMPDIR={self.folder}/$k; mkdir -p $TMPDIR
exec nsenter --net=/run/netns/{self.name}n$k unshare --uts sh -c "hostname {self.name}n$k; $*"''')
        self.rank = self.script("rank", f'''set -e
set_share() {{ shift $OMPI_COMM_WORLD_RANK; export BED_SHARE=$1; }}
set_share {" ".join(map(str, self.cores))}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 BED_LIMITED={self.limited} BED_NETWORK={self.others[0]} BED_LOOP={self.loop} LD_PRELOAD={self.library}
exec taskset -c {self.processor} env $BED_ENVIRONMENT "$@"''')

    @contextlib.contextmanager
    def watched(self):
        """Yields what the ranks' processor takes for two short products, again and again, as long as this lasts: others of its host may slow it down."""
        loop = ctypes.CDLL(str(self.library)).bed_loop
        loop.restype = ctypes.c_double
        seconds, ended = [], threading.Event()

        def watch():
            os.sched_setaffinity(0, {self.processor})
            while not ended.wait(0.02):
                seconds.append(loop())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield seconds
        finally:
            ended.set()
            watcher.join()

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def job(self, *command, time_out=600, environment=None, limit_from=None):
        """Runs a command as one process for each rank, and returns what it printed. Shares of the processor count from the beginning, or from the first line that matches `limit_from`."""
        hosts = ",".join(f"10.77.0.{k + 1}:1" for k in range(len(self.cores)))
        mca = {"plm_rsh_agent": self.agent, "plm_rsh_no_tree_spawn": 1, "btl": "tcp,self", "btl_tcp_if_include": "10.77.0.0/24",
               "oob_tcp_if_include": "10.77.0.0/24"}
        options = [word for name, value in mca.items() for word in ("--mca", name, value)]
        variables = " ".join(f"{name}={value}" for name, value in (environment or {}).items())
        self.limited.unlink(missing_ok=True)
        if not limit_from:
            self.limited.touch()
        whole = ["taskset", "-c", ",".join(map(str, self.others)), "mpirun", "--allow-run-as-root", "--bind-to", "none", *options, "-x", f"BED_ENVIRONMENT={variables}",
                 "--host", hosts, "-n", len(self.cores), self.rank, *command]
        with tempfile.TemporaryFile("w+") as told, subprocess.Popen([str(word) for word in whole], stdout=subprocess.PIPE, stderr=told, text=True) as running:
            late = threading.Timer(time_out, running.terminate)
            late.start()
            lines = []
            try:
                for line in running.stdout:
                    lines.append(line)
                    if limit_from and re.match(limit_from, line):
                        self.limited.touch()
                        limit_from = None
            except BaseException:
                running.terminate()
                raise
            finally:
                late.cancel()
            if running.wait() != 0:
                told.seek(0)
                raise RuntimeError(f"{' '.join(map(str, command))}: {told.read().strip()}")
        return "".join(lines)
