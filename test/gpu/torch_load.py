"""What the case torch_online does with PyTorch: `train` until it is killed, or `serve` requests at random moments.

Prints JSON in the form of gpubench load and gpubench serve.
"""

import argparse
import json
import random
import time

import torch


def model(width, layers):
    return torch.nn.Sequential(*[m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]).cuda()


def train():
    network, told, finished = model(4096, 8), 0, 0
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-4)
    data = torch.randn(512, 4096, device="cuda")
    while True:
        optimiser.zero_grad(set_to_none=True)
        network(data).square().mean().backward()
        optimiser.step()
        finished += 1
        if finished % 4 == 0:
            torch.cuda.synchronize()
            if time.monotonic_ns() - told > 100_000_000:
                told = time.monotonic_ns()
                print(json.dumps({"at_ns": told, "finished": finished}), flush=True)


@torch.inference_mode()
def serve(rate, seconds, seed):
    network, data = model(4096, 24), torch.randn(64, 4096, device="cuda")
    for _ in range(20):
        network(data)
    torch.cuda.synchronize()
    chance, arrivals, latencies = random.Random(seed), [], []
    moment = chance.expovariate(rate)
    while moment < seconds:
        arrivals.append(moment)
        moment += chance.expovariate(rate)
    begin = time.monotonic()
    for arrival in arrivals:
        time.sleep(max(0.0, begin + arrival - time.monotonic()))
        network(data)
        torch.cuda.synchronize()
        latencies.append(1e3 * (time.monotonic() - begin - arrival))
    latencies.sort()
    print(json.dumps({"requests": len(latencies), "p50_ms": latencies[len(latencies) // 2],
                      "p99_ms": latencies[(len(latencies) - 1) * 99 // 100]}))


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["train", "serve"])
parser.add_argument("--rate", type=float, default=25)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--seed", type=int, default=7)
options = parser.parse_args()
if options.what == "train":
    train()
else:
    serve(options.rate, options.seconds, options.seed)
