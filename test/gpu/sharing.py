"""Cases of run.py that divide the GPU's time: caps, two tenants, an online and an offline one.

What a tenant got is the work that it finished, a fixed amount a launch, as a part of what the same program
finishes alone. That needs no clock that goes on while neighbours have the GPU. NVML's utilisation of each process
is remarked beside it where the driver tells it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from bench import HERE, Skip, need_json, need_torch

SETTLE, WINDOW = 2.0, 8.0  # seconds


class Work:
    """A gpubench load that runs until it is stopped, and how far it was when."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True, env=env)
        self.told = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            report = json.loads(line)
            if "at_ns" in report:
                self.told.append((report["at_ns"], report["finished"]))

    def rate(self, begin, end):
        """Launches finished per second between two moments of CLOCK_MONOTONIC, in ns."""
        inside = [(at, finished) for at, finished in self.told if begin <= at <= end]
        assert len(inside) > 2, f"gpubench told nothing: {self.process.poll()}"
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) * 1e9 / (last - first)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def loops(bench):
    """So many turns of the fixed work take about a millisecond here."""
    if not hasattr(bench, "loops"):
        probe = need_json(bench.native(bench.gpubench, "spin", "--loops", "200000", "--count", "20"))
        probe = need_json(bench.native(bench.gpubench, "spin", "--loops", "200000", "--count", "20"))
        bench.loops = max(1, int(200000 * 20 / probe["event_ms"]))
    return bench.loops


def load_command(bench, **options):
    """gpubench's command line: kernels of about 1 ms on as many blocks as any GPU holds, some ahead."""
    settings = {"loops": loops(bench), "grid": 1 if bench.simgpu else 4096, "sync": 8, "seconds": 120, **options}
    return [bench.gpubench, "load", *[word for name, value in settings.items() for word in (f"--{name}", str(value))]]


def rates(bench, tenants, busy=None):
    """Starts all tenants, (share's flags or None for none, command, environment), and returns their rates."""
    works = []
    try:
        for flags, command, env in tenants:
            works.append(Work(placed(bench, flags, command), env))
        time.sleep(SETTLE)
        begin = time.monotonic_ns()
        if busy is not None:
            busy.extend(utilisation(bench, [work.process.pid for work in works], WINDOW))
        else:
            time.sleep(WINDOW)
        return [work.rate(begin, time.monotonic_ns()) for work in works]
    finally:
        for work in works:
            work.stop()


def placed(bench, flags, command):
    """The command in a share with these flags, or outside any for None."""
    return bench.native_command(*command) if flags is None else [*bench.flagged_command(flags), *command]


def utilisation(bench, pids, seconds):
    """The driver's own figures of some processes, in percent; None for one that it does not tell."""
    program = ("import json, sys, time, pynvml as n\nn.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
               "begin = int(time.time() * 1e6); time.sleep(float(sys.argv[1])); seen = {}\n"
               "for s in n.nvmlDeviceGetProcessUtilization(h, begin): seen.setdefault(s.pid, []).append(s.smUtil)\n"
               "print(json.dumps({p: sum(u) / len(u) for p, u in seen.items()}))\n")
    begin = time.monotonic()
    result = bench.native(bench.python, "-c", program, str(seconds))
    time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
    seen = json.loads(result.stdout) if result.returncode == 0 else {}
    return [seen.get(str(pid)) for pid in pids]


def fixed(cores):
    return ["--policy", "fixed", "--cores", str(cores)]


def alone(bench):
    """The rate of one tenant outside any share."""
    return rates(bench, [(None, load_command(bench), None)])[0]


def case_time_caps(bench):
    """One tenant under a cap gets the cap."""
    errors, throughput = [], []
    for cores in (10, 25, 50, 75, 90):
        whole, busy = alone(bench), []
        got = 100 * rates(bench, [(fixed(cores), load_command(bench), None)], busy)[0] / whole
        bench.remark(f"cap {cores} %: {got:.1f} % of the work done alone; the driver says {busy[0]}")
        errors.append(abs(got - cores))
        throughput.append(100 * min(got, cores) / cores)
    mean = sum(errors) / len(errors)
    bench.row("gpu.time.cap_mae_points", mean, "points", "lower", goal=1, runs=errors)
    bench.row("gpu.time.cap_throughput_percent", sum(throughput) / len(throughput), "%", "higher", goal=97,
              runs=throughput)
    assert mean < 10, errors


@contextlib.contextmanager
def mps(bench):
    """The driver's own multi-process service, with a daemon of our own."""
    control = shutil.which("nvidia-cuda-mps-control")
    if bench.simgpu or control is None:
        raise Skip("no MPS here")
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([control, "-d"], env=env, capture_output=True, text=True, check=False, timeout=30)
        if started.returncode != 0:
            raise Skip(f"MPS does not start: {started.stderr.strip()}")
        try:
            yield env
        finally:
            subprocess.run([control], input="quit\n", env=env, capture_output=True, text=True, check=False, timeout=60)


def case_time_pair(bench):
    """Two tenants of 30 and 70 percent get as much, where time slices alone give them halves."""
    whole, command = alone(bench), load_command(bench)
    plain = [100 * rate / whole for rate in rates(bench, [(None, command, None)] * 2)]
    bench.remark(f"two tenants, time slices alone: {plain[0]:.1f} : {plain[1]:.1f}")
    errors, sums = [], []
    for _ in range(5):
        got = [100 * rate / whole for rate in rates(bench, [(fixed(c), command, None) for c in (30, 70)])]
        bench.remark(f"two tenants, 30 : 70: {got[0]:.1f} : {got[1]:.1f}")
        errors.append(max(abs(got[0] - 30), abs(got[1] - 70)))
        sums.append(sum(got))
    bench.row("gpu.time.pair_error_points", sorted(errors)[2], "points", "lower", goal=1.5, runs=errors)
    bench.row("gpu.time.pair_sum_percent", sorted(sums)[2], "%", "higher", goal=97, runs=sums)
    assert sorted(errors)[2] < 10, errors


def case_time_pair_mps(bench):
    """The same under MPS with 30 and 70 percent of the threads, for comparison."""
    with mps(bench) as env:
        whole, command = rates(bench, [(None, load_command(bench), env)])[0], load_command(bench)
        shares = [(None, command, {**env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(c)}) for c in (30, 70)]
        got = [100 * rate / whole for rate in rates(bench, shares)]
    bench.remark(f"two tenants, MPS 30 : 70: {got[0]:.1f} : {got[1]:.1f}")


def serve(bench, flags, command, neighbour, env=None):
    """Latency of a service, beside a neighbour (flags, command) if any, and the neighbour's launches a second."""
    other = None
    if neighbour is not None:
        other = Work(placed(bench, *neighbour), env)
        time.sleep(SETTLE)
    try:
        begin = time.monotonic_ns()
        result = subprocess.run(placed(bench, flags, command), capture_output=True, text=True, timeout=300, check=False, env=env)
        rate = other.rate(begin, time.monotonic_ns()) if other is not None else 0
        return need_json(result)["p99_ms"], rate
    finally:
        if other is not None:
            other.stop()


def online_row(bench, ident, service, offline, whole):
    """Rows of p99 beside an offline neighbour against alone, and a remark of what others do."""
    ratios, harvests = [], []
    for seed in range(3 if not bench.simgpu else 1):
        command = [*service, "--seed", str(seed)]
        quiet, _ = serve(bench, ["--class", "online"], command, None)
        ours, rate = serve(bench, ["--class", "online"], command, (["--class", "offline"], offline))
        ratios.append(ours / quiet)
        harvests.append(100 * rate / whole)
    plain, rate = serve(bench, None, command, (None, offline))
    bench.remark(f"{ident}: p99 alone {quiet:.1f} ms, beside offline work {ours:.1f} ms (which gets {harvests[-1]:.0f} % "
                 f"of what it gets alone); time slices alone: {plain:.1f} ms ({100 * rate / whole:.0f} %)")
    with contextlib.suppress(Skip), mps(bench) as env:
        other, rate = serve(bench, None, command, (None, offline), env)
        bench.remark(f"{ident}: under MPS {other:.1f} ms ({100 * rate / whole:.0f} %)")
    bench.row(f"{ident}_p99_ratio", sorted(ratios)[len(ratios) // 2], "ratio", "lower", goal=1.05, runs=ratios)
    bench.row(f"{ident}_harvest_percent", sorted(harvests)[len(harvests) // 2], "%", "higher", runs=harvests)


def case_time_online(bench):
    """An online service of 1 ms kernels hardly notices offline work beside it."""
    offline = load_command(bench, loops=max(1, loops(bench) // 5), sync=16)
    whole = rates(bench, [(None, offline, None)])[0]
    service = [bench.gpubench, "serve", "--rate", "25", "--kernels", "20", "--loops", str(loops(bench)),
               "--seconds", "60" if not bench.simgpu else "5"]
    online_row(bench, "gpu.time.online", service, offline, whole)


def case_time_torch(bench):
    """A PyTorch inference loop hardly notices a PyTorch training loop beside it."""
    if bench.simgpu:
        raise Skip("PyTorch needs a real GPU")
    need_torch()
    script = [sys.executable, str(HERE / "torch_load.py")]
    whole = rates(bench, [(None, [*script, "train"], None)])[0]
    online_row(bench, "gpu.time.torch_online", [*script, "serve", "--rate", "25", "--seconds", "60"],
               [*script, "train"], whole)


def case_time_cost(bench):
    """A limit that does not bind costs little: work done in such a share against none."""
    lost = []
    for _ in range(5):
        whole = alone(bench)
        lost.append(100 * (1 - rates(bench, [(fixed(100), load_command(bench), None)])[0] / whole))
    bench.row("gpu.time.launch_added_percent", sorted(lost)[2], "%", "lower", goal=1, runs=lost)


def case_time_slice_controls(bench):
    """Whether the driver's own time-slice controls answer an ordinary process."""
    raise Skip("not tried: their handles are only seen by a library before ioctl, which does not exist here")
