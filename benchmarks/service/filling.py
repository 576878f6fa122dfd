"""Fills a service's database with many records, past its API: for a million of them. No torch.

``python -m launchkit.benchmarks.service.filling FIRST LAST`` writes the rows that the service itself
would, into the database of LAUNCHKIT_DATABASE. The benchmark then compares answers with records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

from sqlalchemy import insert

from launchkit import clock
from launchkit.benchmarks.service import records as service_records
from launchkit.benchmarks.service.servers import NAMESPACE
from launchkit.configs import config_text
from launchkit.errors import UsageError
from launchkit.service import audit, db, protocol, records, signing, tables
from launchkit.service.options import ServiceSettings

_BATCH = 1000
_COMMAND = sys.executable, "-m", "launchkit.benchmarks.service.filling"


def copy_in(database_url: str, numbers: range, processes: int = 2) -> dict[str, Any]:
    """Store the records of these numbers, by several processes; returns what it took.

    Raises UsageError where one of them failed.
    """
    start_ns = clock.now_ns()
    variables = {**os.environ, "LAUNCHKIT_DATABASE": database_url}
    bounds = [numbers.start + len(numbers) * n // processes for n in range(processes + 1)]
    started = [
        subprocess.Popen([*_COMMAND, str(first), str(last)], env=variables)
        for first, last in pairwise(bounds)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise UsageError("records could not be stored. See above why.")
    wall_s = (clock.now_ns() - start_ns) / 1e9
    return {"records": len(numbers), "wall_s": round(wall_s, 1)}


def write(database_url: str, numbers: range) -> None:
    """Write the rows of the records of these numbers."""
    database = db.connect(ServiceSettings(database_url))
    statement = insert(tables.records).values(updated_ms=db.NowMs())
    try:
        for start in range(numbers.start, numbers.stop, _BATCH):
            rows = [_row(number) for number in range(start, min(start + _BATCH, numbers.stop))]
            with database.writing() as connection:
                connection.execute(statement, rows)
    finally:
        database.close()


def _row(number: int) -> dict[str, Any]:
    record = service_records.record(number)
    body = signing.body(record)
    kernel, digest, device, _ = protocol.record_parts(record.kernel, record.device, record.key)
    return audit.record_columns(record) | {
        "place": records.place_of(NAMESPACE, record),
        "namespace": NAMESPACE,
        "kernel": kernel,
        "digest": digest,
        "device": device,
        "device_name": record.device.name,
        "document": body.decode(),
        "etag": signing.etag(body),
        "signature": None,
        "chosen_text": config_text(record.chosen),
        "median_us": record.winner.median_us,
        "tuning_s": record.seconds,
        "writer": "bench",
    }


if __name__ == "__main__":
    write(os.environ["LAUNCHKIT_DATABASE"], range(int(sys.argv[1]), int(sys.argv[2])))
