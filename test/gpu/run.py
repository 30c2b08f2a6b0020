#!/usr/bin/env python3
"""Tries Divvy on a machine with a real NVIDIA driver and writes a report.

Needs a finished build folder, Python 3 and the driver; PyTorch for the cases that name it. No network. Each
case runs programs natively and inside a share (`divvy run`) and compares. With --simgpu MACHINE the cases that
need no PyTorch run on the simulated driver, which shows that this program works, and nothing about a GPU.

Exit status: 0 all cases passed or were skipped with a reason, 1 a case failed, 2 wrong usage.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import aliases
import sharing
from bench import GIB, HERE, MIB, Bench, Skip, need_json, need_torch


def torch_case(bench, name, memory):
    if bench.simgpu:
        raise Skip("PyTorch needs a real GPU")
    need_torch()
    result = bench.share(memory, sys.executable, str(HERE / "torch_cases.py"), name)
    assert result.returncode == 0, f"exit {result.returncode}: {result.stdout}{result.stderr}"
    return need_json(result)


def case_limit_holds(bench):
    """Allocations of 64 MiB stop inside the limit with CUDA_ERROR_OUT_OF_MEMORY."""
    report = need_json(bench.share("4Gi", bench.gpubench, "alloc", "--bytes", "64Mi", "--count", "1000"))
    assert report["code"] == 2, report
    assert 3 * GIB <= report["allocated_bytes"] <= 4 * GIB, report
    assert report["total_bytes"] == 4 * GIB, report
    overhead = 4 * GIB - report["allocated_bytes"] - report["free_bytes"]
    bench.row("gpu.context_overhead_mib", overhead / MIB, "MiB", "lower")


def case_every_kind(bench):
    """Every kind of allocation is limited."""
    for kind in ("linear", "async", "managed", "pitch", "vmm", "array"):
        report = need_json(bench.share("2Gi", bench.gpubench, "alloc", "--kind", kind, "--bytes", "64Mi",
                                       "--count", "1000"))
        assert report["code"] == 2, (kind, report)
        assert report["allocated_bytes"] <= 2 * GIB, (kind, report)


def case_copies(bench):
    """Copies give the same bytes back."""
    assert need_json(bench.share("2Gi", bench.gpubench, "copy", "--bytes", "256Mi"))["equal"]


def case_kernels_and_graphs(bench):
    """Kernels and a CUDA graph run inside a share."""
    for command in ("spin", "graph"):
        report = need_json(bench.share("2Gi", bench.gpubench, command, "--count", "20", "--ns", "1000000"))
        assert report["result"] == "CUDA_SUCCESS" and report["event_ms"] >= 19, report


def device_used(bench):
    """Bytes in use on the first GPU and per process, as the driver says outside any share."""
    query = "import json,pynvml as n; n.nvmlInit(); h=n.nvmlDeviceGetHandleByIndex(0); " \
            "print(json.dumps({'used': n.nvmlDeviceGetMemoryInfo(h).used, 'processes': " \
            "[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)]}))"
    result = bench.native(bench.python, "-c", query)
    if result.returncode != 0:
        raise Skip(f"nvidia-ml-py is not installed here: {result.stderr.strip().splitlines()[-1:]}")
    return need_json(result)


def listed(bench):
    where = ["--simgpu", bench.simgpu] if bench.simgpu else []
    return json.loads(bench.call([bench.divvy, "ls", *where, "-o", "json"]).stdout)


def share_used(document):
    """Bytes that the shares of the first GPU are charged; there is one tenant."""
    return sum(share["used"] for agent in document["agents"] for tenant in agent["tenants"]
               for share in tenant["shares"])


@contextlib.contextmanager
def held(command):
    """A process that has allocated and holds until the block ends."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("{") and json.loads(line)["code"] == 0, line
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def case_accounting(bench):
    """The share's account agrees with the driver's own per-process figure, or the device's change."""
    before = device_used(bench)
    command = bench.share_command("8Gi", bench.gpubench, "hold", "--bytes", "3Gi", "--seconds", "60")
    with held(command):
        after = device_used(bench)
        mine = share_used(listed(bench))
    known = {pid for pid, used in before["processes"]}
    own = [used for pid, used in after["processes"] if pid not in known and used]
    if own:
        truth, source = own[0], "driver's per-process figure"
    else:
        truth, source = after["used"] - before["used"], "whole-device change (the driver hides processes here)"
    bench.remark(f"accounting: share says {mine}, {source} says {truth}")
    bench.row("gpu.account_error_mib", abs(mine - truth) / MIB, "MiB", "lower", goal=2, case=source)
    assert abs(mine - truth) <= 64 * MIB, (mine, truth, source)


def case_smi(bench):
    """nvidia-smi inside a share shows the share's memory."""
    if bench.simgpu:
        raise Skip("nvidia-smi belongs to a real driver")
    result = bench.share("6Gi", "nvidia-smi", "--query-gpu=memory.total,count", "--format=csv,noheader,nounits")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split(",")[0].strip() == "6144", result.stdout


def case_cost(bench):
    """Added time per call, native against ours, alternating in one run."""
    for live in ("1", "50000"):
        pairs, launches = [], []
        for _ in range(5):
            arguments = [bench.gpubench, "cost", "--count", "20000", "--bytes", "4096", "--live", live]
            native, ours = need_json(bench.native(*arguments)), need_json(bench.share("8Gi", *arguments))
            pairs.append(ours["pair_ns"] - native["pair_ns"])
            launches.append(ours["launch_ns"] - native["launch_ns"])
        bench.row("gpu.alloc_added_ns", sorted(pairs)[2], "ns", "lower", goal=150, runs=pairs, case=f"{live} live")
        bench.row("gpu.launch_added_ns", sorted(launches)[2], "ns", "lower", goal=5, runs=launches, case=f"{live} live")


def case_aliases(bench):
    """Names that share one driver pointer, which identity alone cannot tell apart."""
    report = aliases.report(HERE.parent.parent / "lib" / "abi" / "generated" / "cuda_exports.txt", bench)
    bench.remark(f"driver exports {report['present']} of {report['named']} names in abi/; "
                 f"{len(report['groups'])} groups of aliases; {report['unlisted']} looked-up pointers without export")
    for group in report["groups"]:
        more = f" and {len(group) - 12} more" if len(group) > 12 else ""
        bench.remark("one pointer: " + " = ".join(group[:12]) + more)


def case_killed(bench):
    """Memory of a killed tenant is back."""
    before = device_used(bench)["used"]
    with held(bench.share_command("8Gi", bench.gpubench, "hold", "--bytes", "2Gi")) as process:
        process.kill()
        process.wait()
    end = time.monotonic() + 10
    while device_used(bench)["used"] > before + 64 * MIB:
        assert time.monotonic() < end, "memory is not back after 10 s"


def case_torch_matmul(bench):
    """A matrix product under a limit equals the processor's."""
    torch_case(bench, "matmul", "8Gi")


def case_torch_allocator(bench):
    """PyTorch's caching allocator meets the limit, raises OutOfMemoryError, and recovers."""
    report = torch_case(bench, "allocator", "6Gi")
    bench.row("gpu.torch_usable_percent", 100 * report["reserved"] / report["usable"], "%", "higher", goal=99)


def case_torch_async(bench):
    """PyTorch on cudaMallocAsync meets the limit."""
    torch_case(bench, "async", "6Gi")


def case_torch_expandable(bench):
    """PyTorch's expandable segments (virtual memory management) meet the limit."""
    torch_case(bench, "expandable", "6Gi")


def case_torch_graphs(bench):
    """CUDA graphs captured by PyTorch replay under a limit."""
    torch_case(bench, "graphs", "8Gi")


def write_report(bench, outcomes, folder):
    name = "gpu-simgpu" if bench.simgpu else "gpu"
    driver = "simulated" if bench.simgpu else Bench.call(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).stdout.strip().replace("\n", "; ")
    commit = Bench.call(["git", "describe", "--always", "--dirty", "--exclude=*"]).stdout.strip() or "unknown"
    for row in bench.rows:
        row.update(machine=f"{driver}, {os.cpu_count()} x {platform.machine()}", commit=commit,
                   date=datetime.date.today().isoformat())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(bench.rows, indent=2) + "\n")
    lines = [f"# GPU report: {driver}", "", f"`make gpu-test`, commit {commit}, {datetime.date.today()}", "",
             "| case | outcome |", "|---|---|"]
    lines += [f"| {case} | {outcome} |" for case, outcome in outcomes]
    lines += ["", *[f"* {remark}" for remark in bench.remarks]]
    (folder / f"{name}-report.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--simgpu", metavar="MACHINE", help="try this program on the simulated driver")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/measurements"))
    parser.add_argument("--case", action="append", help="run only this case")
    options = parser.parse_args()
    bench = Bench(options.build.resolve(), options.simgpu)
    outcomes, failed, skipped = [], 0, 0
    for name, case in [(n[5:], f) for n, f in [*globals().items(), *vars(sharing).items()]
                       if n.startswith("case_")]:
        if options.case and name not in options.case:
            continue
        try:
            case(bench)
            outcome = "passed"
        except Skip as reason:
            skipped += 1
            outcome = f"skipped: {reason}"
        except (AssertionError, KeyError, ValueError, OSError, subprocess.TimeoutExpired) as fault:
            failed += 1
            outcome = f"**failed**: {fault!r}"
        outcomes.append((name, outcome.replace("\n", " ").replace("|", "/")))
        print(f"{name}: {outcome}", flush=True)
    write_report(bench, outcomes, options.out)
    print(f"{len(outcomes) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
