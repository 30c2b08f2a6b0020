"""Drives the Jupyter kernel gpu-8gi: what it sees, an interrupt, a restart."""

import os
import sys
import tempfile
import time

from jupyter_client.manager import start_new_kernel

TIMEOUT = 120  # seconds, on a busy machine


def said(client, code):
    """What a cell prints."""
    texts = []

    def hook(message):
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=hook, timeout=TIMEOUT)
    if reply["content"]["status"] != "ok":
        sys.exit(f"{code!r} ends with {reply['content']}")
    return "".join(texts).strip()


MEMORY = """import json, subprocess
print(json.loads(subprocess.check_output(["gpubench", "info"]))["devices"][0]["total_bytes"])"""
SHARES = """import json, subprocess
print(len(json.loads(subprocess.check_output(["divvy", "ls", "-o", "json"]))["agents"][0]["tenants"]))"""
PID = "import os; print(os.getpid())"


def interrupted(manager, client):
    """The error with which a cell ends that is interrupted once it runs."""
    with tempfile.TemporaryDirectory() as folder:
        # The cell tells by a file that it runs: an interrupt inside of print, or just before a long sleep, can be lost.
        begun = os.path.join(folder, "begun")
        code = f"import os, time\nwhile True: os.close(os.open({begun!r}, os.O_CREAT)); time.sleep(0.01)"
        # Unless told otherwise the kernel drops what it is asked just after an error.
        cell = client.execute(code, stop_on_error=False)
        while not os.path.exists(begun):
            time.sleep(0.01)
        manager.interrupt_kernel()
        while True:
            reply = client.get_shell_msg(timeout=TIMEOUT)
            if reply["parent_header"]["msg_id"] == cell:
                return reply["content"]["ename"]


manager, client = start_new_kernel(startup_timeout=TIMEOUT, kernel_name="gpu-8gi")
try:
    print("memory:", said(client, MEMORY))
    print("interrupted:", interrupted(manager, client))
    print("shares:", said(client, SHARES))
    before = said(client, PID)
    manager.restart_kernel(now=False)
    client.wait_for_ready(timeout=TIMEOUT)
    print("same kernel:", said(client, PID) == before)
    print("memory again:", said(client, MEMORY))
    print("shares again:", said(client, SHARES))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
