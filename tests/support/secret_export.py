"""A small Nsight Systems export that says much of the machine it was made on."""

from __future__ import annotations

import sqlite3

PID, OTHER_PID = 4242, 77
PROCESS = (1 << 48) | (PID << 24)
OTHER = (1 << 48) | (OTHER_PID << 24)
THREAD = PROCESS | PID

SECRETS = (
    b"gpu-box-17", b"alice", b"/home/", b"projects", b"hunter2", b"API_TOKEN", b"--secret-flag",
    b"10.1.2.3", b"backupd", b"GPU-0123", b"internal.example", b"0000:3b", b"never-in-a-copy",
)  # fmt: skip

RANGES = [
    # start, end, type, text, textId
    (100, 900, 59, "step", None),
    (150, 400, 59, None, 1),
    (450, 800, 59, "load /home/alice/projects/model.py:12", None),
    (850, None, 60, "asked http://internal.example/x of gpu-box-17", None),
    (500, 500, 34, "mark", None),
    (300, 5_000, 60, "ends with the capture", None),
    (-50, None, 75, "launchkit", None),
]
STRINGS = {
    1: "layer0",
    2: "cudaLaunchKernel_v7000",
    3: "my_kernel",
    4: "/home/alice/env/bin/python3",
    5: "never-in-a-copy",
}
CALLS = [(160, 200, 1), (205, 260, 2), (610, 640, 3)]
KERNELS = [(250, 500, 1), (500, 700, 2), (700, 1200, 3)]


def write_export(path) -> None:
    """Write the export; its times reach from -50 to 1200 ns."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE StringIds (id INTEGER NOT NULL, value TEXT NOT NULL);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
            text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
            globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
            contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
            demangledName INTEGER, shortName INTEGER);
        CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
        CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, uuid TEXT, busLocation TEXT, smCount INTEGER);
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, name TEXT, value TEXT);
        CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER, duration INTEGER);
        CREATE TABLE OF_A_NEWER_EXPORT (start INTEGER, end INTEGER, note TEXT);
        CREATE INDEX of_somebody ON PROCESSES (pid);
        CREATE VIEW a_view AS SELECT value FROM StringIds;
        """
    )
    for table, rows in _rows().items():
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    connection.commit()
    connection.close()


def _rows() -> dict[str, list[tuple[object, ...]]]:
    return {
        "StringIds": list(STRINGS.items()),
        "NVTX_EVENTS": [(*row[:4], THREAD, row[4], 1, "never-in-a-copy") for row in RANGES],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(*row[:2], 0, THREAD, row[2], 2, 0) for row in CALLS],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            (*row[:2], 0, 1, 7, row[2], PROCESS, 3, 3) for row in KERNELS
        ],
        "PROCESSES": [(PROCESS, PID, "/home/alice/env/bin/python3"), (OTHER, OTHER_PID, "backupd")],
        "ThreadNames": [(4, 20, THREAD), (5, 20, OTHER | 3)],
        "TARGET_INFO_GPU": [(0, "NVIDIA H200", "GPU-0123", "0000:3b:00.0", 132)],
        "TARGET_INFO_SYSTEM_ENV": [(0, "Hostname", "gpu-box-17"), (0, "Address", "10.1.2.3")],
        "META_DATA_CAPTURE": [
            ("PROCESS_0:COMMAND", "/home/alice/env/bin/python3"),
            ("PROCESS_0:ARGUMENT_0", "--secret-flag"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", "API_TOKEN=hunter2"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", "USER=alice"),
            ("PROCESS_0:COLLECT_CUDA_TRACE", "true"),
        ],
        "META_DATA_EXPORT": [
            ("EXPORT_SCHEMA_VERSION", "3.20.3"),
            ("EXPORT_SCHEMA_VERSION_MAJOR", "3"),
            ("EXPORT_HOST", "gpu-box-17"),
            ("EXPORT_PARAM_INPUT_FILE", "/home/alice/projects/a.nsys-rep"),
        ],
        "ANALYSIS_DETAILS": [(0, 5_000)],
        "OF_A_NEWER_EXPORT": [(1, 2, "never-in-a-copy")],
    }
