"""One rank of a two-GPU job; tests/gpu/test_ranks.py starts two, which print what they saw as JSON.

Usage: rank_gpu_worker.py FOLDER RANK. The default group is NCCL's, on one GPU a rank; each rank has
a config store of its own. Ends without taking the groups down, since one scene kills a rank.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

import sample_kernels
import torch
import torch.distributed as dist
import triton
from triton.testing import do_bench

import launchkit
from launchkit.errors import AgreementError

BLOCKS = (64, 128)
LIMITS = {"timeout_s": 60.0, "silent_s": 3.0}


class Rank:
    """A rank with its kernel; ``measured`` counts the configs that it benchmarked."""

    def __init__(self, place: pathlib.Path, rank: int) -> None:
        self.place, self.rank, self.measured = place, rank, 0
        self.dies = False
        tune = launchkit.autotuned(
            sample_kernels.configs(*BLOCKS), ["n"], name="ranked", do_bench=self._bench
        )
        self.kernel = tune(sample_kernels.copy)
        launchkit.use_store(place / f"store{rank}")

    def _bench(self, call: Any, quantiles: Any) -> Any:
        self.measured += 1
        if self.dies:
            (self.place / "dying").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return do_bench(call, warmup=5, rep=20, quantiles=quantiles)

    def launch(self, n: int) -> bool:
        """Launch with ``n`` elements, and tell whether they are copied and nothing else is written."""
        x = torch.randn(n + 7, device="cuda")
        y = torch.full_like(x, float("nan"))
        launchkit.launch_autotuned(
            self.kernel, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), x, y, n, 1
        )
        return torch.equal(y[:n], x[:n]) and bool(y[n:].isnan().all())

    def block(self) -> int:
        return int(self.kernel.best_config.kwargs["BLOCK"])


def together(rank: Rank) -> dict[str, Any]:
    """Three keys that nobody knows: each is tuned by one rank, and all launch the same config."""
    ok, blocks = [], []
    with launchkit.agree_across_ranks([rank.kernel], **LIMITS) as agreement:
        for n in (1001, 2003, 4007):
            ok.append(rank.launch(n))
            blocks.append(rank.block())
    ok.append(rank.launch(1001))
    total = torch.full((5,), float(rank.rank + 1), device="cuda")
    dist.all_reduce(total)
    return {"ok": ok, "blocks": blocks, "measured": rank.measured, "digest": agreement.digest,
            "keys": agreement.keys, "reduced": total.tolist()}  # fmt: skip


def rank_1_killed(rank: Rank) -> dict[str, Any]:
    """Rank 1 is killed while it tunes a key; rank 0 tunes it, and is told at the end."""
    before, silent = rank.measured, []
    try:
        with launchkit.agree_across_ranks([rank.kernel], **LIMITS) as agreement:
            rank.dies = rank.rank == 1
            while rank.rank == 0 and not (rank.place / "dying").exists():
                time.sleep(0.01)
            ok = rank.launch(8009)
    except AgreementError as error:
        silent = list(error.silent)
    return {"ok": ok, "silent": silent, "measured": rank.measured - before,
            "taken_over": agreement.counts["taken-over"]}  # fmt: skip


def main() -> None:
    place, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.cuda.set_device(number)
    init = f"file://{place}/rendezvous"
    dist.init_process_group("nccl", init_method=init, rank=number, world_size=2)
    rank = Rank(place, number)
    said = {"together": together(rank)}
    (place / f"said{number}").write_text(json.dumps(said))
    said["rank_1_killed"] = rank_1_killed(rank)
    (place / f"said{number}").write_text(json.dumps(said))
    os._exit(0)  # the end of NCCL waits for the dead rank


if __name__ == "__main__":
    main()
