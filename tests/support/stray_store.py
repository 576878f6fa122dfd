"""A program that tunes a kernel one of whose configs writes far outside of its memory."""

import sys

import torch
import triton
import triton.language as tl

import launchkit
from launchkit.errors import TuningStoppedError


@triton.jit
def strays(x_ptr, n, BLOCK: tl.constexpr, FAR: tl.constexpr):
    offsets = tl.arange(0, BLOCK).to(tl.int64) + FAR
    tl.store(x_ptr + offsets, 1.0)


def main(place):
    configs = [triton.Config({"BLOCK": 16, "FAR": far}) for far in (0, 2**44, 1)]
    kernel = launchkit.autotuned(configs, ["n"], name="strays")(strays)
    with launchkit.use_store(place):
        try:
            kernel[(1,)](torch.zeros(64, device="cuda"), 64)
        except TuningStoppedError as error:
            sys.exit(f"stopped at {error.fields['config']}: {error.fields['reason']}")
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
