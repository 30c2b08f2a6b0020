"""Runs programs natively and in shares, for the cases of run.py."""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30


class Skip(Exception):
    """A case that cannot run here; the message says why."""


class Bench:
    """Runs programs natively and in shares, and collects rows and remarks for the report."""

    def __init__(self, build, simgpu):
        self.build, self.simgpu = build, simgpu
        self.divvy = str(build / "bin" / "divvy")
        self.gpubench = str(build / "bin" / "gpubench")
        # Where the tests have installed NVIDIA's bindings for themselves, those serve here too.
        bindings = HERE.parent.parent / ".cache" / "third-party" / "python" / "bin" / "python3"
        self.python = str(bindings) if bindings.exists() else sys.executable
        self.rows, self.remarks = [], []

    def native(self, *command):
        """Runs a command on the GPU without Divvy."""
        return self.call(self.native_command(*command))

    def native_command(self, *command):
        return [self.divvy, "simgpu", "exec", self.simgpu, "--", *command] if self.simgpu else [*command]

    def share(self, memory, *command):
        """Runs a command inside a share of the given memory."""
        return self.call(self.share_command(memory, *command))

    def share_command(self, memory, *command):
        return [*self.flagged_command([], memory), *command]

    def flagged_command(self, flags, memory="25%"):
        """What comes before a command to run it in a share with these flags."""
        where = ["--simgpu", self.simgpu] if self.simgpu else []
        return [self.divvy, "run", *where, "--memory", memory, *flags, "--"]

    @staticmethod
    def call(command):
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def row(self, ident, value, unit, better, goal=None, runs=None, case=""):
        runs = runs or [value]
        self.rows.append({
            "id": ident, "case": case, "value": value, "unit": unit, "goal": goal, "better": better,
            "worst": max(runs) if better == "lower" else min(runs), "runs": len(runs),
            "command": "make gpu-test", "machine": "", "date": "", "commit": "",
        })

    def remark(self, text):
        self.remarks.append(text)


def need_json(result):
    """The last JSON object a program printed; a failure that shows what it said otherwise."""
    for line in reversed(result.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError(f"no JSON from {result.args}: exit {result.returncode}, {result.stdout!r} {result.stderr!r}")


def need_torch():
    probe = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"],
                           capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise Skip("PyTorch with CUDA is not installed here")
