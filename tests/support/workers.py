"""Start tuning_worker.py as processes of their own."""

import json
import os
import pathlib
import subprocess
import sys

WORKER = pathlib.Path(__file__).with_name("tuning_worker.py")


def start(store, times, rounds=1, **environment):
    """Start a worker that sees the same packages as this process."""
    paths = [str(WORKER.parent), *sys.path]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(WORKER),
        str(store),
        json.dumps(times),
        str(rounds),
    ]
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process):
    """Wait for a worker, and return what it said and what it warned of."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out), err


def run(store, times, rounds=1, **environment):
    """Run one worker to its end, and return what it said."""
    return finished(start(store, times, rounds, **environment))[0]
