"""What ``launchkit bench fuzz`` feeds: every reader of files that other people may have written.

A target makes an input from a random generator, and takes it: it returns the records that were
accepted and the reasons for what was not, and lets every exception through that is not documented.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from launchkit import jsonio
from launchkit.benchmarks.fuzz import manifests, seeds
from launchkit.benchmarks.fuzz.mutations import a_value, damaged, mutated, noise, some_json, spelled
from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError, StoreError, UsageError
from launchkit.store import DirectoryStore, bundle, document, foreign, pins

Files = dict[str, bytes]
Taken = tuple[Sequence[Any], Sequence[str]]


@dataclass(frozen=True)
class Target:
    """One reader. ``make``: an input's files by relative path; ``take``: read them in a folder.

    ``check`` raises AssertionError for what may not be taken; None: the rules of a record.
    """

    make: Callable[[Random], Files]
    take: Callable[[Path], Taken]
    check: Callable[[Sequence[Any]], None] | None = None


def _sha256(content: object) -> str:
    return hashlib.sha256(jsonio.dumps_compact(content)).hexdigest()


# -- the config document, as a file of a store and by itself


@functools.cache
def _document_object(count: int = 9) -> Any:
    made = seeds.records()[:count]
    return document.to_object(document.ConfigDocument(made[0].kernel, made[0].device, made))


def _make_document(rng: Random) -> Files:
    return {"document.json": some_json(rng, _document_object(rng.choice((1, 2, 9))))}


def _take_document(folder: Path) -> Taken:
    try:
        return document.parse((folder / "document.json").read_bytes(), source="it").records, ()
    except BadDocumentError as error:
        return (), (error.reason,)


def _make_stored(rng: Random) -> Files:
    record = seeds.records()[0]
    place = f"v1/{record.device.slug}/{record.kernel.slug}/{record.key.digest[:2]}.json"
    return {place: some_json(rng, _document_object(1))}


def _take_stored(folder: Path) -> Taken:
    """Read as a launch and as a listing do; neither may raise, whatever lies there."""
    store, record = DirectoryStore(folder), seeds.records()[0]
    listed = list(store.records())
    found = store.get(*record.identity)
    if isinstance(found, TunedRecord):
        return [*listed, found], ()
    return listed, () if listed else (found.reason,)


# -- bundles and lock files, whose checksums are made to fit half of the time


@functools.cache
def _bundled() -> tuple[Any, ...]:
    wholes = (document.ConfigDocument(r.kernel, r.device, (r,)) for r in seeds.records()[:3])
    return tuple(document.to_object(whole) for whole in wholes)


@functools.cache
def _locked() -> dict[str, Any]:
    dumped = pins.dump(pins.select(seeds.records()))
    whole = jsonio.loads(dumped, source="it", limit_bytes=2**20)
    assert isinstance(whole, dict)
    return whole


def _make_bundle(rng: Random) -> Files:
    bodies = list(_bundled()[: rng.choice((1, 3))])
    at = rng.randrange(len(bodies))
    bodies[at] = mutated(rng, bodies[at])
    try:
        lines = [
            jsonio.dumps_compact(_changed(rng, {"document": body, "sha256": _sha256(body)}))
            for body in bodies
        ]
        body = b"".join(line + b"\n" for line in lines)
        digest = hashlib.sha256(body).hexdigest()
        head = {"launchkit_bundle": 1, "entries": len(lines), "sha256": digest}
        data = jsonio.dumps_compact(_changed(rng, head)) + b"\n" + body
    except UsageError:
        data = noise(rng)
    packed = gzip.compress(data, 1, mtime=0) if rng.random() < 0.2 else data
    return {"it.bundle": damaged(rng, packed) if rng.random() < 0.2 else packed}


def _changed(rng: Random, content: Any) -> Any:
    return mutated(rng, content) if rng.random() < 0.1 else content


def _take_bundle(folder: Path) -> Taken:
    path = folder / "it.bundle"
    part = bundle_or_reason(path, partial=True)
    whole = bundle_or_reason(path, partial=False)
    if isinstance(whole, str):
        return (part.records if isinstance(part, bundle.Bundle) else ()), (whole,)
    if not isinstance(part, bundle.Bundle) or part.records != whole.records:
        raise AssertionError("a whole bundle has other records when it is read in parts")
    return whole.records, ()


def bundle_or_reason(path: Path, *, partial: bool) -> bundle.Bundle | str:
    """Return what is read, or why it is refused."""
    try:
        return bundle.read(path, partial=partial)
    except BadDocumentError as error:
        return error.reason


def _make_lock(rng: Random) -> Files:
    whole = _locked()
    try:
        documents = mutated(rng, whole["documents"])
        lock = {**whole, "documents": documents, "sha256": _sha256(documents)}
    except UsageError:
        lock = whole
    return {"it.lock": spelled(rng, _changed(rng, lock))}


def _take_lock(folder: Path) -> Taken:
    try:
        return list(pins.PinnedStore(folder / "it.lock").records()), ()
    except StoreError as error:
        return (), (getattr(error, "reason", str(error)),)


# -- other programs' files


def _make_foreign(
    content: Callable[[], Any],
    path: str,
    seal: Callable[[Any], Any] | None,
    rng: Random,
) -> Files:
    changed = mutated(rng, content())
    if seal is not None and rng.random() < 0.5:
        changed = seal(changed)
    name = path if rng.random() < 0.9 else _other_name(rng, path)
    data = spelled(rng, changed) if rng.random() < 0.9 else some_json(rng, content())
    return {name: data}


def _other_name(rng: Random, path: str) -> str:
    """Return a path whose parts are changed, yet stay one relative path of plain bytes."""
    parts = path.split("/")
    at = rng.randrange(len(parts))
    piece = "".join(each for each in f"{a_value(rng)!s:.20}" if each.isprintable() and each != "/")
    cut = rng.randrange(len(parts[at]) + 1)
    stem = parts[at][:cut] + piece + parts[at][cut + rng.randrange(2) :]
    parts[at] = stem if stem not in ("", ".", "..") else "x"
    return "/".join(parts)


def _seal_fla(content: Any) -> Any:
    """Give each entry of a changed file the digest of its key."""
    entries = content.get("autotune_entries") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        return content
    sealed = {}
    for digest, entry in entries.items():
        key = entry.get("autotune_key") if isinstance(entry, dict) else None
        try:
            sealed[seeds.fla_digest(key)] = entry
        except UsageError:
            sealed[digest] = entry
    return {**content, "autotune_entries": sealed}


def _take_foreign(name: str, changes: Mapping[str, Any], folder: Path) -> Taken:
    context = replace(seeds.CONTEXT, **changes)
    found = foreign.read(name, folder, context)
    for record in found.records:
        if (record.kernel, record.device) != (context.kernel, context.device):
            raise AssertionError("a record of another kernel or device was taken")
    return found.records, [each.reason for each in found.skipped]


def _foreign(
    name: str,
    content: Callable[[], Any],
    path: str,
    seal: Callable[[Any], Any] | None = None,
    **changes: Any,
) -> Target:
    make = partial(_make_foreign, content, path, seal)
    return Target(make, partial(_take_foreign, name, changes))


_MOE = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,64].json"
_DEJAVU = "dejavu_0.7/triton_3.6.0/cuda_12.8/gpu_NVIDIA_H100_80GB_HBM3/scale_rows/t/cache.json"

TARGETS: dict[str, Target] = {
    "document": Target(_make_document, _take_document),
    "store": Target(_make_stored, _take_stored),
    "bundle": Target(_make_bundle, _take_bundle),
    "lock": Target(_make_lock, _take_lock),
    "manifest": Target(manifests.make, manifests.take, manifests.check),
    "triton": _foreign("triton", seeds.triton, "AB/scale_rows.autotune.json"),
    "dejavu": _foreign("dejavu", seeds.dejavu, _DEJAVU),
    "fla": _foreign("fla", seeds.fla, "GPU/scale_rows.json", _seal_fla),
    "vllm": _foreign("vllm", seeds.moe, _MOE, keys=("M", "E")),
    "sglang": _foreign("sglang", seeds.moe, f"triton_3_6_0/{_MOE}", keys=("M", "E", "block_k")),
    "inductor": _foreign("inductor", seeds.inductor, "ab/x.best_config", key_values={"n": 1}),
}
"""Every reader by its name."""

if importlib.util.find_spec("polars") is not None:
    # Now, not on first use: what polars maps is not the memory of an input.
    from launchkit.benchmarks.fuzz import copies, samples, timelines, traces

    TARGETS |= {
        "nsys-sqlite": Target(timelines.make_sqlite, timelines.take, timelines.check),
        "nsys-parquet": Target(timelines.make_parquet, timelines.take, timelines.check),
        "chrome": Target(traces.make_trace, timelines.take, timelines.check),
        "samples": Target(samples.make_samples, timelines.take, timelines.check),
        "py-spy": Target(samples.make_pyspy, timelines.take, timelines.check),
        "scrub": Target(copies.make, copies.take_scrubbed, timelines.check),
        "slice": Target(copies.make, copies.take_sliced, timelines.check),
        "profile": Target(traces.make_profile, traces.take_profile, timelines.check),
    }
