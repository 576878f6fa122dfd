"""Ranks of a torch.distributed job (gloo); test_ranks.py runs this file and reads its JSON.

Usage: rank_worker.py FOLDER SCENE:RANKS[:tcp] ... The ranks are forked here, after the imports, and launch in host-only mode; measuring is a stand-in
with times of each rank's own.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import sample_kernels
import torch
import torch.distributed as dist
from benching import Bench, grid_of_block, kernel_with, launched_block
from store_worker import fork

import launchkit
from launchkit import hostonly
from launchkit.benchmarks.host import free_port
from launchkit.dispatch import triton_seam
from launchkit.errors import AgreementError

FASTEST = {
    16: {16: 1.0, 32: 2.0, 64: 3.0},
    32: {16: 2.0, 32: 1.0, 64: 3.0},
    64: {16: 3.0, 32: 2.0, 64: 1.0},
}
LIMITS = {"timeout_s": 60.0, "silent_s": 3.0}


class Rank:
    """One rank: its kernel, whose benchmark says that ``fastest`` is the fastest block."""

    def __init__(self, place: str, rank: int, fastest: int, store: str | None = None) -> None:
        self.rank = rank
        self.bench = Bench(FASTEST[fastest])
        self.place = pathlib.Path(place)
        launchkit.use_store(self.place / (store or f"store{rank}"))
        self.kernel = kernel_with(self.bench, name="ranked")

    def launch(self, n: int = 64) -> int:
        return launched_block(self.kernel, n)

    def agree(self, **options: Any) -> launchkit.dispatch.ranks.agreement.Agreement:
        return launchkit.agree_across_ranks([self.kernel], **{**LIMITS, **options})

    def stored(self) -> int:
        return sum(1 for _ in launchkit.DirectoryStore(self.place / f"store{self.rank}").records())


def play(
    root: pathlib.Path, scene: Callable[[str, int], dict[str, Any]], count: int, init: str
) -> list[Any]:
    """Run a scene on ``count`` ranks; return what each said, or how it ended."""

    def work(rank: int) -> bool:
        logging.disable(logging.WARNING)
        triton_seam.executes = lambda: True
        dist.init_process_group("gloo", init_method=init, rank=rank, world_size=count)
        try:
            said = scene(str(root), rank)
        except AgreementError as error:
            said = {"silent": list(error.silent), "conflicts": len(error.conflicts)}
        (root / f"said{rank}").write_text(json.dumps(said))
        return True

    children = [fork(lambda rank=rank: work(rank)) for rank in range(count)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(codes) <= {0, -signal.SIGKILL}, f"{scene.__name__} ended with {codes}"
    files = [root / f"said{rank}" for rank in range(count)]
    return [
        json.loads(file.read_text()) if file.exists() else code
        for file, code in zip(files, codes, strict=True)
    ]


def played(root: pathlib.Path, wanted: str) -> list[Any]:
    """Run what an argument says: a scene, its number of ranks, and over which store they meet."""
    name, count, *kind = wanted.split(":")
    root.mkdir(parents=True, exist_ok=True)
    (root / "rendezvous").unlink(missing_ok=True)
    init = f"file://{root}/rendezvous"
    if kind:
        init = f"tcp://127.0.0.1:{free_port()}"
    return play(root, globals()[name], int(count), init)


def cold(place: str, number: int) -> dict[str, Any]:
    """Nobody knows anything, and each rank would find another config the fastest."""
    rank = Rank(place, number, (16, 32, 64)[number])
    with rank.agree() as agreement:
        first = rank.launch()
    again = rank.launch()
    return {"blocks": [first, again], "measured": rank.bench.measured, "keys": agreement.keys,
            "digest": agreement.digest, "stored": rank.stored()}  # fmt: skip


def warm_zero(place: str, number: int) -> dict[str, Any]:
    """Rank 0 has tuned before; the others are cold."""
    rank = Rank(place, number, (64, 16, 32)[number])
    if number == 0:
        rank.launch()
    before = list(rank.bench.measured)
    agreement = rank.agree()
    return {"block": rank.launch(), "measured": rank.bench.measured[len(before):],
            "digest": agreement.digest, "stored": rank.stored()}  # fmt: skip


def unlike(place: str, number: int) -> dict[str, Any]:
    """Every rank has launched already, with another config, and plans are in use."""
    rank = Rank(place, number, (32, 16)[number])
    x, blocks = torch.empty(64), launchkit.grid("BLOCK")

    @launchkit.planned
    def op(x: torch.Tensor) -> None:
        launchkit.launch_autotuned(rank.kernel, blocks, x, x, 64, 1)

    def launches() -> list[int]:
        found = [rank.launch() for _ in range(3)]
        for _ in range(3):
            op(x)
            found.append(hostonly.launches()[-1].grid[0])
        return found

    before = launches()
    agreement = rank.agree()
    return {"before": before, "after": launches(), "replays": op.op_plans.replays,
            "changed": agreement.changed, "digest": agreement.digest}  # fmt: skip


def by_triton(place: str, number: int) -> dict[str, Any]:
    """Triton's own Autotuner has tuned on each rank, before launchkit came; nothing is stored."""
    rank = Rank(place, number, (64, 16)[number])
    x = torch.empty(64)
    rank.kernel.triton_run(x, x, 64, 1, grid=grid_of_block, warmup=False)
    before = rank.launch()
    agreement = rank.agree()
    return {"before": before, "after": rank.launch(), "digest": agreement.digest,
            "stored": rank.stored()}  # fmt: skip


def disjoint(place: str, number: int) -> dict[str, Any]:
    """Ranks launch other shapes, and rank 2 does not launch the kernel at all."""
    rank = Rank(place, number, 32)
    with rank.agree() as agreement:
        blocks = [rank.launch(64 + number)] if number < 2 else []
    return {"blocks": blocks, "measured": len(rank.bench.measured), "keys": agreement.keys,
            "stored": rank.stored(), "digest": agreement.digest}  # fmt: skip


def lists(place: str, number: int, **options: Any) -> dict[str, Any]:
    """The ranks have unlike config lists, with 32 in common."""
    rank = Rank(place, number, (16, 64)[number])
    blocks = ((16, 32), (32, 64))[number]
    rank.kernel = kernel_with(rank.bench, blocks, name="ranked")
    with rank.agree(**options):
        rank.launch()
    return {"block": rank.launch()}


def lists_refused(place: str, number: int) -> dict[str, Any]:
    return lists(place, number, unlike_configs="error")


def nothing_common(place: str, number: int) -> dict[str, Any]:
    rank = Rank(place, number, 16)
    rank.kernel = kernel_with(rank.bench, ((16, 32), (64, 128))[number], name="ranked")
    rank.bench.times = {16: 1.0, 32: 2.0, 64: 1.0, 128: 2.0}
    with rank.agree():
        rank.launch()
    return {"block": rank.launch()}


def owner_fails(place: str, number: int) -> dict[str, Any]:
    """Rank 0 owns the key and runs out of memory while it tunes."""
    rank = Rank(place, number, 32)
    if number == 0:
        rank.bench.times = dict.fromkeys(FASTEST[16], MemoryError("on this rank"))
    failed = False
    with rank.agree() as agreement:
        _after_rank_0(rank)
        try:
            rank.launch()
        except MemoryError:
            failed = True
    return {"failed": failed, "block": rank.launch(), "owned": agreement.counts["owned"]}


def _after_rank_0(rank: Rank) -> None:
    sign = rank.place / "rank0-goes-first"
    if rank.rank == 0:
        sign.touch()
    while not sign.exists():
        time.sleep(0.01)
    time.sleep(0.2 * rank.rank)


def owner_killed(place: str, number: int) -> dict[str, Any]:
    """Rank 0 owns the key and is killed while it tunes."""
    rank = Rank(place, number, 32)
    measure = rank.bench.__class__.__call__

    def die(self: Bench, call: Callable[[], None], quantiles: Any) -> Any:
        measure(self, call, quantiles)
        os.kill(os.getpid(), signal.SIGKILL)

    agreement = rank.agree()
    agreement.__enter__()
    _after_rank_0(rank)
    if number == 0:
        Bench.__call__ = die
    block = rank.launch()
    try:
        agreement.__exit__(None, None, None)
        silent = []
    except AgreementError as error:
        silent = list(error.silent)
    return {"block": block, "silent": silent, "measured": len(rank.bench.measured),
            "taken_over": agreement.counts["taken-over"]}  # fmt: skip


def late(place: str, number: int) -> dict[str, Any]:
    """Rank 1 comes when the others have given up; then all agree again."""
    rank = Rank(place, number, 32)
    if number == 1:
        while not (rank.place / "gave-up0").exists():
            time.sleep(0.01)
    first = []
    try:
        rank.agree(timeout_s=0.5)
    except AgreementError as error:
        first = [error.reason.split(" did")[0]]
    (rank.place / f"gave-up{number}").touch()
    agreement = rank.agree()
    return {"first": first, "ranks": list(agreement.ranks)}


def broken_block(place: str, number: int) -> dict[str, Any]:
    """Rank 1 leaves the block with an error of its own."""
    rank = Rank(place, number, 32)
    try:
        with rank.agree():
            if number == 1:
                raise KeyError("its own")
    except (KeyError, AgreementError) as error:
        return {"error": type(error).__name__, "names_rank_1": "rank 1" in str(error)}
    return {}


def spread(place: str, number: int) -> dict[str, Any]:
    """Six keys, each tuned once, by both ranks at the same time."""
    rank = Rank(place, number, (16, 32)[number])
    with rank.agree() as agreement:
        agreement.spread({str(n): lambda n=n: rank.launch(n) for n in range(64, 70)})
    return {"blocks": [rank.launch(n) for n in range(64, 70)], "keys": agreement.keys,
            "measured": len(rank.bench.measured), "owned": agreement.counts["owned"]}  # fmt: skip


def grown_world(place: str, number: int) -> dict[str, Any]:
    """One rank more than in the job before, whose stores are still there."""
    rank = Rank(str(pathlib.Path(place).parent / "cold"), number, 64)
    rank.agree()
    return {"block": rank.launch(), "measured": len(rank.bench.measured)}


def keeper_killed(place: str, number: int) -> dict[str, Any]:
    """Rank 0, whose process keeps the key-value store, is killed; the other one goes on alone."""
    rank = Rank(place, number, (16, 32)[number])
    agreement = rank.agree()
    agreement.__enter__()
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    block = rank.launch()
    try:
        agreement.__exit__(None, None, None)
        error = ""
    except AgreementError as lost:
        error = lost.reason
    return {"block": block, "lost": agreement.counts["lost"], "error": "store" in error}


if __name__ == "__main__":
    folder, *scenes = sys.argv[1:]
    torch.set_num_threads(1)
    place = pathlib.Path(folder)
    with hostonly.activate():
        x = torch.empty(64)
        for block in (16, 32, 64, 128):  # here, and not in each rank again
            launchkit.launch(sample_kernels.copy, (block,), x, x, 64, 1, BLOCK=block)
        seen = {each.split(":")[0]: played(place / each.split(":")[0], each) for each in scenes}
    sys.stdout.write(json.dumps(seen))
