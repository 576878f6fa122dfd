"""Start tuning_worker.py as processes of their own."""

import json
import os
import pathlib
import subprocess
import sys

WORKER = pathlib.Path(__file__).with_name("tuning_worker.py")


def start(store, times, rounds=1, wait=False, **environment):
    """Start a worker that sees the same packages as this process.

    With ``wait`` it does not launch before ``release``.
    """
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
        *(["wait"] if wait else []),
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def release(processes):
    """Let waiting workers launch, all at once, when the last of them is ready."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def finished(process):
    """Wait for a worker, and return what it said and what it warned of."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out), err


def run(store, times, rounds=1, **environment):
    """Run one worker to its end, and return what it said."""
    return finished(start(store, times, rounds, **environment))[0]
