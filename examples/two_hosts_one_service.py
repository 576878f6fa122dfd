"""Two hosts and a config service: what one host has tuned, the other gets without tuning.

Each host is a process with a store of its own, as a machine would have. With a GPU host A tunes.
Without one nothing can be measured: host A then brings in a winner that another program left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

N = 1_000_003

# -- a host: what a serving process does


def host() -> dict[str, Any]:
    """Launch once, ask the store what a launch asks it, and say what it answered."""
    import torch
    import triton
    import triton.language as tl

    import launchkit
    from launchkit import hostonly
    from launchkit.store import Miss

    @launchkit.autotuned(
        configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (4, 8)],
        key=["n"],
        name="two_hosts.scale",
    )
    @triton.jit
    def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

    cuda, blocks = torch.cuda.is_available(), launchkit.grid(launchkit.cdiv("n", "BLOCK"))
    with ExitStack() as stack:
        if not cuda:
            stack.enter_context(hostonly.activate())
        x, y = (torch.zeros(N, device="cuda" if cuda else "cpu") for _ in range(2))
        store = launchkit.open_store()  # LAUNCHKIT_STORE, and LAUNCHKIT_SERVICE behind it
        looked_for = launchkit.explain(scale, blocks, x, y, N).identity
        before = store.get(*looked_for)
        scale[blocks](x, y, N)  # tunes on a GPU where nothing is stored; takes the first without
        if isinstance(before, Miss) and not cuda and "--brings-a-winner" in sys.argv:
            store.put(winner_of_another_program(looked_for))
        after = store.get(*looked_for)
    return {
        "mode": torch.cuda.get_device_name() if cuda else "host-only: nothing is measured",
        "before": before.reason if isinstance(before, Miss) else store.where(before),
        "config": "none" if isinstance(after, Miss) else after.winner.text,
        "tunings": launchkit.stats().configs.tunings,
    }


def winner_of_another_program(wanted: tuple[Any, ...]) -> Any:
    """Return the record of a file as PyTorch Inductor leaves them: a config without a time."""
    from launchkit.store.foreign import ForeignContext, read

    kernel, device, toolchain, _ = wanted
    found = {"BLOCK": 1024, "num_warps": 8, "num_stages": 3, "configs_hash": "of the program"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scale.best_config")
        path.write_text(json.dumps(found))
        told = ForeignContext(
            kernel, device, toolchain, parameters=("x_ptr", "y_ptr", "n", "BLOCK"), keys=("n",),
            dtypes={"x_ptr": "torch.float32", "y_ptr": "torch.float32"}, key_values={"n": N},
        )  # fmt: skip
        (record,) = read("inductor", path, told).records
    return record


# -- the two hosts and the service


def main() -> int:
    """Play it, and print what each host was told; 0 if host B never tuned."""
    from rich.console import Console
    from rich.table import Table

    if find_spec("fastapi") is None:
        print("The service needs: pip install 'launchkit-triton[service]'", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and no server is left behind
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        command = [sys.executable, "-m", "launchkit", "serve", "--port", "0", "--quiet", "--json"]
        # Writing without a token is for a machine of one's own: see launchkit serve token create.
        command += ["--open-writes", "--database", f"sqlite:///{folder}/service.db"]
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]

        def run(name: str, *program: str) -> str:
            own = {
                "LAUNCHKIT_STORE": f"{folder}/{name}/configs",
                "XDG_CACHE_HOME": f"{folder}/{name}",
            }
            shared = {"LAUNCHKIT_SERVICE": url, "LAUNCHKIT_SERVICE_TOKEN": "-"}
            # A launch waits half a second for the service; here one machine plays all three.
            shared["LAUNCHKIT_SERVICE_TIMEOUT_MS"] = "5000"
            done = subprocess.run(
                [sys.executable, *program], env={**os.environ, **own, **shared},
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            return done.stdout

        rows = [("A", "up", json.loads(run("a", __file__, "--host", "--brings-a-winner")))]
        # What is tuned is sent in the background; this sends what was not, before host B asks.
        run("a", "-m", "launchkit", "configs", "push")
        rows.append(("B", "up", json.loads(run("b", __file__, "--host"))))
        server.kill()
        server.wait()
        rows.append(("B, started anew", "killed", json.loads(run("b", __file__, "--host"))))
    table = Table("host", "service", "its store answered", "tuned here", "config afterwards")
    for name, service, told in rows:
        table.add_row(
            name,
            service,
            told["before"].partition(" http")[0],
            str(told["tunings"]),
            told["config"],
        )
    Console(width=120).print(f"two hosts, one service ({rows[0][2]['mode']})", table, sep="\n")
    same = len({told["config"] for _, _, told in rows}) == 1
    return 0 if same and not any(told["tunings"] for _, _, told in rows[1:]) else 1


if __name__ == "__main__":
    if "--host" in sys.argv:
        print(json.dumps(host()))
    else:
        argparse.ArgumentParser(description=__doc__).parse_args()
        sys.exit(main())
