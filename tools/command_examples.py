"""One or two examples for each command, which its help ends with. Of the tools; imports nothing."""

from __future__ import annotations

EXAMPLES = {
    "": ("launchkit doctor", "launchkit bench", "launchkit run --stats serve.py"),
    "bench": ("launchkit bench", "launchkit bench launch --case noop_46 -o launch.json"),
    "bench launch": ("launchkit bench launch --case noop_46 --case state_passing",),
    "bench mamba": ("launchkit bench mamba --model Nemotron-3-Nano --tokens 2048",),
    "bench libraries": ("launchkit bench libraries",),
    "bench layer": ("launchkit bench layer -o layer.json",),
    "bench serve": ("launchkit bench serve",),
    "bench costs": ("launchkit bench costs",),
    "bench warm": ("launchkit bench warm",),
    "bench predict": ("launchkit bench predict --keep captures -o predict.json",),
    "bench copy": ("launchkit bench copy",),
    "bench indices": ("launchkit bench indices",),
    "bench store": ("launchkit bench store --keys 1000",),
    "bench service": ("launchkit bench service --fleet",),
    "bench import": ("launchkit bench import",),
    "bench differential": ("launchkit bench differential --sets 1000000 --seed 1",),
    "bench fuzz": ("launchkit bench fuzz --inputs 100000",),
    "bench soak": ("launchkit bench soak --launches 10000000",),
    "configs": ("launchkit configs list", "launchkit configs pin launchkit.lock --kernel my_model"),
    "configs list": ("launchkit configs list --device H200",),
    "configs show": ("launchkit configs show add_one",),
    "configs explain": ("launchkit configs explain add_one --key n=100000 --dtype x_ptr=float16",),
    "configs diff": ("launchkit configs diff launchkit.lock ~/.cache/launchkit/configs",),
    "configs merge": ("launchkit configs merge /scratch/configs --into /srv/team --dry-run",),
    "configs export": ("launchkit configs export h200.bundle.gz --device H200",),
    "configs import": (
        "launchkit configs import h200.bundle.gz --policy newer",
        "launchkit configs import --format triton ~/.triton/cache --dry-run",
    ),
    "configs pin": ("launchkit configs pin launchkit.lock --kernel my_model",),
    "configs check": ("launchkit configs check --lock launchkit.lock",),
    "configs push": ("launchkit configs push --service https://configs.example.org/team",),
    "configs pull": ("launchkit configs pull --store pinned --snapshot 3f0c09ab77d2",),
    "configs status": ("launchkit configs status",),
    "configs gc": ("launchkit configs gc --older-than 26w --stale minor --yes",),
    "profile": (
        "launchkit profile -- train.py --steps 20",
        "launchkit profile --nsys -- torchrun train.py",
        "launchkit profile scrub capture.sqlite shared.sqlite",
    ),
    "profile capture": (
        "launchkit profile -- train.py --steps 20",
        "launchkit profile --nsys --dry-run -- train.py",
    ),
    "profile scrub": ("launchkit profile scrub capture.sqlite shared.sqlite",),
    "profile slice": (
        "launchkit profile slice capture.sqlite step.sqlite --range step --number 3",
        "launchkit profile slice trace.json.gz part.json.gz --from 1.5s --to 2s",
    ),
    "serve": (
        "launchkit serve token create gpu-fleet",
        "launchkit serve --host 10.0.0.5 --database postgresql://host/launchkit",
    ),
    "serve migrate": ("launchkit serve migrate --database postgresql://host/launchkit",),
    "serve prune": ("launchkit serve prune --records-days 400 --dry-run",),
    "serve token": ("launchkit serve token create ci --scope read",),
    "serve token create": ("launchkit serve token create ci --scope read --namespace team-a",),
    "serve token list": ("launchkit serve token list",),
    "serve token revoke": ("launchkit serve token revoke 4f1c09ab77d2",),
    "serve namespace": ("launchkit serve namespace create team-a",),
    "serve namespace create": ("launchkit serve namespace create team-a",),
    "serve namespace list": ("launchkit serve namespace list",),
    "diff": (
        "launchkit diff before.sqlite after.sqlite",
        "launchkit diff before.json.gz after.json.gz --fail-over 10%",
    ),
    "doctor": ("launchkit doctor", "launchkit doctor --json"),
    "report": (
        "launchkit report capture.sqlite",
        "launchkit report capture.sqlite --html report.html --perfetto trace.json",
    ),
    "tune": ("launchkit tune manifest.json --store /shared/configs --gpus 0,1",),
    "warm": ("launchkit warm manifest.json",),
    "run": ("launchkit run --stats serve.py --port 8000", "launchkit run -m my_package.train"),
}
"""By the words behind ``launchkit``. Each parses as it stands."""


def epilog(command: str) -> str:
    """Return what the help of a command ends with: a paragraph a line, as Typer prints them."""
    lines = EXAMPLES.get(command, ())
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines]) if lines else ""
