"""Operators of liger-kernel and flash-linear-attention before and after ``launchkit.install()``.

Nothing of the libraries is changed, and their launches are the same ones: install() replaces what
``kernel[grid]`` does on the way to the driver. Neither library is needed by launchkit.
"""

from __future__ import annotations

import argparse
import sys
import timeit
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec

ROUNDS, CALLS = 30, 10
Operator = Callable[[], object]


def liger(device: str) -> dict[str, Operator]:
    """Return operators of liger-kernel: plain kernels."""
    import torch
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    x, y = (torch.zeros(64, 1024, dtype=torch.bfloat16, device=device) for _ in range(2))
    weight = torch.ones(1024, dtype=torch.bfloat16, device=device)
    return {
        "rms_norm": lambda: LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False),
        "swiglu": lambda: LigerSiLUMulFunction.apply(x, y),
    }


def fla(device: str) -> dict[str, Operator]:
    """Return operators of flash-linear-attention: autotuned kernels, most below heuristics."""
    import torch
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    try:
        from fla.modules.norm.l2norm import l2norm
    except ModuleNotFoundError:  # before 0.6
        from fla.modules.l2norm import l2norm
    q, k, v = (torch.zeros(1, 1, 4, 64, dtype=torch.bfloat16, device=device) for _ in range(3))
    g = torch.zeros(1, 1, 4, device=device)
    return {
        "gated_delta_rule": lambda: fused_recurrent_gated_delta_rule(q, k, v, g, beta=q[..., 0]),
        "l2norm": lambda: l2norm(q),
    }


LIBRARIES = {"liger_kernel": ("liger-kernel", liger), "fla": ("flash-linear-attention", fla)}


def before_and_after(operator: Operator) -> tuple[int, float, float, float]:
    """Return launches a call, host µs of a call without and with install(), and of a launch then."""
    import launchkit

    before_us, after_us = [], []
    for _ in range(ROUNDS):  # in turns, so that a slow moment hits both
        before_us.append(call_us(operator))
        launchkit.install()
        after_us.append(call_us(operator))
        launchkit.uninstall()
    launchkit.install()
    operator()  # a plan is of one installation
    with launchkit.profile_launches() as profile:
        for _ in range(CALLS):
            operator()
    launchkit.uninstall()
    launches = sum(row.launches for row in profile.rows)
    launch_us = sum((row.median_us or 0.0) * row.launches for row in profile.rows) / launches
    return launches // CALLS, min(before_us), min(after_us), launch_us


def call_us(operator: Operator) -> float:
    """Return host µs of a call, torch's part included; the GPU is not waited for."""
    import torch

    for _ in range(3):  # compiles, or makes a plan
        operator()
    us = timeit.timeit(operator, number=CALLS) / CALLS * 1e6
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return us


def main() -> int:
    """Measure the operators of what is installed; 2 if nothing is."""
    present = [name for name in LIBRARIES if find_spec(name)]
    if not present:
        names = " or ".join(f"pip install {package}" for package, _ in LIBRARIES.values())
        print(f"There is no library to launch for. Try one of: {names}", file=sys.stderr)
        return 2
    import torch
    from rich.console import Console
    from rich.table import Column, Table

    import launchkit
    from launchkit import hostonly
    from launchkit.benchmarks.libraries.ops import pretended_gpu

    head = "launches", "call", "with install()", "its launch", "with install()"
    table = Table("operator", *(Column(name, justify="right") for name in head))
    with ExitStack() as stack:
        stack.enter_context(launchkit.use_store("memory:"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the libraries' own
        cuda = torch.cuda.is_available()
        if not cuda:
            stack.enter_context(hostonly.activate())
            stack.enter_context(hostonly.recording(False))
            stack.enter_context(pretended_gpu())  # the libraries ask torch which GPU there is
            torch.set_num_threads(1)  # torch's operators really compute here
        stack.enter_context(launchkit.count_launches())
        stack.enter_context(torch.no_grad())
        for package, operators in (LIBRARIES[name] for name in present):
            for name, operator in operators("cuda" if cuda else "cpu").items():
                launches, before_us, after_us, launch_us = before_and_after(operator)
                saved_us = (before_us - after_us) / launches
                us = f"{before_us:.1f}", f"{after_us:.1f}", f"{saved_us + launch_us:.1f}"
                table.add_row(f"{package}: {name}", f"{launches}", *us, f"{launch_us:.1f}")
    where = torch.cuda.get_device_name() if cuda else "host-only: without the driver's own cost"
    print(f"host µs of a call, torch's part and the library's Python included ({where})")
    Console(width=110).print(table)
    print(launchkit.stats())
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(main())
