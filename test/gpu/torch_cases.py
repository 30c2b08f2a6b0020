"""What the cases torch_… do with PyTorch inside a share. Prints one JSON object; an exception is a failure."""

import json
import os
import sys

if sys.argv[1] == "async":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
if sys.argv[1] == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # the allocator reads its setting when it is imported

MIB = 1 << 20


def matmul():
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    difference = (a.cuda() @ b.cuda()).cpu() - a @ b
    assert difference.abs().max().item() < 1e-2, difference.abs().max().item()
    return {"equal": True}


def fill_until_refused():
    """Allocates 64 MiB tensors until PyTorch says that memory is out; returns what it then had reserved."""
    free, total = torch.cuda.mem_get_info()
    tensors = []
    try:
        while True:
            tensors.append(torch.ones(16 * MIB, dtype=torch.float32, device="cuda"))
            assert len(tensors) * 64 * MIB <= total, "allocated more than the share"
    except torch.cuda.OutOfMemoryError:
        pass
    torch.cuda.synchronize()
    assert all(t[0].item() == 1 and t[-1].item() == 1 for t in tensors)
    held = len(tensors) * 64 * MIB
    tensors.clear()
    torch.cuda.empty_cache()
    again = torch.ones(16 * MIB, dtype=torch.float32, device="cuda")
    assert again.sum().item() == 16 * MIB
    return {"reserved": held, "usable": free - free % (64 * MIB), "total": total}


def graphs():
    weight = torch.randn(256, 256, device="cuda")
    static = torch.zeros(256, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            static @ weight
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = static @ weight
    for _ in range(10):
        fresh = torch.randn(256, 256, device="cuda")
        static.copy_(fresh)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.allclose(out, fresh @ weight, atol=1e-3)
    return {"replays": 10}


CASES = {"matmul": matmul, "allocator": fill_until_refused, "async": fill_until_refused,
         "expandable": fill_until_refused, "graphs": graphs}
print(json.dumps(CASES[sys.argv[1]]()))
