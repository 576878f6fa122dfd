"""One process that launches an autotuned kernel over a store; prints what happened as JSON.

Usage: tuning_worker.py STORE TIMES [ROUNDS [wait]] where TIMES is JSON: block → milliseconds, or
null to fail on any benchmark, and a negative time sleeps for ever once it has said so. With "wait"
it says that it is ready, and launches when it reads a line.
"""

import json
import os
import sys
import time

import sample_kernels
import torch
from benching import Bench, grid_of_block

import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam

BLOCKS = (16, 32, 64)


class Forbidden(Bench):
    def __call__(self, call, quantiles):
        raise AssertionError("a config was benchmarked")


class Hanging(Bench):
    def __call__(self, call, quantiles):
        result = super().__call__(call, quantiles)
        if result[0] < 0:
            sys.stdout.write("tuning\n")
            sys.stdout.flush()
            time.sleep(600)
        return result


def main():
    place, times = sys.argv[1], json.loads(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    if place != "-":
        os.environ["LAUNCHKIT_STORE"] = place
    triton_seam.executes = lambda: True
    bench = Forbidden({}) if times is None else Hanging({int(k): v for k, v in times.items()})
    with hostonly.activate():
        tune = launchkit.autotuned(
            sample_kernels.configs(*BLOCKS), ["n"], name="worker", do_bench=bench
        )
        kernel = tune(sample_kernels.copy)
        x = torch.empty(64)
        if "wait" in sys.argv[4:]:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
        for _ in range(rounds):
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
        entry = kernel._launchkit_entry
        launched = [launch.grid[0] for launch in hostonly.launches()]
    core = getattr(entry, "_core", None)
    seen = {
        "block": launched[-1],
        "measured": bench.measured,
        "plans": None if core is None else len(core),
    }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
