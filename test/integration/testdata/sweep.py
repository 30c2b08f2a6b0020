"""Prints as JSON what every query of the bindings that needs no more than a GPU answers.

The GPU is the one whose UUID is the argument.
"""

import ctypes
import inspect
import json
import sys

import pynvml


def plain(value):
    """A form of an answer that can be compared: structures as their bytes."""
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        return bytes(value).hex()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return {name: plain(one) for name, one in vars(value).items()}
    return repr(value)


def answer(query, handle):
    try:
        return plain(query(handle))
    except pynvml.NVMLError as error:
        return {"error": error.value}
    except (TypeError, AttributeError, ValueError) as error:
        return {"bindings": type(error).__name__}  # the bindings' own fault, the same everywhere


def queries():
    for name, query in sorted(inspect.getmembers(pynvml, inspect.isfunction)):
        if not name.startswith(("nvmlDeviceGet", "nvmlDeviceIs")):
            continue
        needed = [
            one
            for one in inspect.signature(query).parameters.values()
            if one.default is inspect.Parameter.empty
        ]
        if len(needed) == 1 and needed[0].name in ("handle", "device"):
            yield name, query


def main():
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
    json.dump({name: answer(query, handle) for name, query in queries()}, sys.stdout)


main()
