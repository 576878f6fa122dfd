"""A copy of an Nsight Systems export that can be shared. Above export_rewriting.

It says what to keep, not what to remove, so that a table or a text of a newer export stays out
until it is known: of the tables below every number, and of texts those that are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launchkit.profiling.timeline.copies.export_rewriting import Rewriting, Table, rewriting
from launchkit.profiling.timeline.copies.files import AnyPath
from launchkit.profiling.timeline.copies.scrubbed_text import Cleaner, file_name, without_paths
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.nsys.sqlite_files import quoted

_PROCESS_MASK = ~0xFFFFFF
"""Of a global thread id, what its process shares (as a signed 64-bit number)."""
_DROPPED_TABLE = "of a table that scrub does not keep"
_IDENTITIES = ("uuid", "luid", "busLocation", "pwGpuId")


@dataclass(frozen=True)
class _Kept:
    """What is kept of a table besides its numbers.

    ``texts`` are columns of text for people, ``strings`` columns with ids of strings; ``code``:
    these are names from program code, in which no host stands. ``owner``: the column that says
    whose the row is; ``owned``: rows of processes without any event are left out.
    """

    texts: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    code: bool = False
    owner: str = ""
    owned: bool = False


_CALLS = _Kept(strings=("nameId",), code=True, owner="globalTid")
_WORK = _Kept(owner="globalPid")
_KEPT = {
    "ANALYSIS_DETAILS": _Kept(),
    "CUDA_GRAPH_EVENTS": _CALLS,
    "CUDA_GRAPH_NODE_EVENTS": _CALLS,
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": _WORK,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _WORK,
    "CUPTI_ACTIVITY_KIND_KERNEL": _Kept(
        strings=("demangledName", "shortName", "mangledName"), code=True, owner="globalPid"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _WORK,
    "CUPTI_ACTIVITY_KIND_MEMSET": _WORK,
    "CUPTI_ACTIVITY_KIND_OVERHEAD": _CALLS,
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALLS,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _WORK,
    "DIAGNOSTIC_EVENT": _Kept(texts=("text",)),
    "NVTX_EVENTS": _Kept(
        texts=("text", "jsonText"), strings=("textId", "jsonTextId"), owner="globalTid"
    ),
    "NVTX_PAYLOAD_SCHEMAS": _Kept(texts=("name",)),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": _Kept(texts=("name",)),
    "PROCESSES": _Kept(texts=("name",), owner="globalPid", owned=True),
    "PROFILER_OVERHEAD": _Kept(strings=("nameId",), owner="globalTid"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": _Kept(),
    "TARGET_INFO_CUDA_DEVICE": _Kept(),
    "TARGET_INFO_CUDA_NULL_STREAM": _Kept(),
    "TARGET_INFO_CUDA_STREAM": _Kept(),
    "TARGET_INFO_GPU": _Kept(texts=("name", "chipName"), code=True),
    "TARGET_INFO_SESSION_START_TIME": _Kept(texts=("utcTime",), code=True),
    "ThreadNames": _Kept(strings=("nameId",), owner="globalTid", owned=True),
}
_ENUM = _Kept(texts=("name", "label"), code=True)
_META = {
    "EXPORT_META_DATA": ("EXPORT_PRODUCT_", "EXPORT_SCHEMA_VERSION", "EXPORT_ARCH", "LAUNCHKIT_"),
    "META_DATA_EXPORT": ("EXPORT_PRODUCT_", "EXPORT_SCHEMA_VERSION", "EXPORT_ARCH", "LAUNCHKIT_"),
    "META_DATA_CAPTURE": ("CAPTURE_EVENT_TYPE", "CUDA_GRAPH_TRACE", "PROCESS_0:COLLECT_"),
}
_SECRETS = (
    ("META_DATA_EXPORT", "name IN ('EXPORT_HOST', 'EXPORT_USER')"),
    ("EXPORT_META_DATA", "name IN ('EXPORT_HOST', 'EXPORT_USER')"),
    ("META_DATA_CAPTURE", "name LIKE '%DISPLAY_NAME' OR name LIKE '%HOST%' OR name LIKE '%USER%'"),
    ("META_DATA_CAPTURE", "value LIKE 'HOSTNAME=%' OR value LIKE 'USER=%' OR value LIKE 'LOGNAME=%'"),
    ("TARGET_INFO_SYSTEM_ENV", "name LIKE '%host%name%'"),
)  # fmt: skip


def scrub_export(path: AnyPath, output: AnyPath) -> RowCounts:
    """Write a copy of the SQLite export ``path`` that says nothing of the machine to ``output``.

    Left out are environment, command line, hosts, users, paths, identities of GPUs, processes
    without an event, and every table and text that is not known to be free of them. Returns the
    rows read, used and dropped. Raises TimelineError for what cannot be read as an export.
    """
    counts = RowCounts()
    with rewriting(path, output) as copy:
        _Scrubbing(copy, counts).run()
    return counts


class _Scrubbing:
    def __init__(self, copy: Rewriting, counts: RowCounts) -> None:
        self._copy = copy
        self._counts = counts
        self._sql = copy.connection
        cleaner = Cleaner(_secrets(copy))
        for name, clean in (("cleaned", cleaner.clean), ("code", without_paths)):
            self._sql.create_function(name, 1, _of_text(clean), deterministic=True)
        self._sql.create_function("file_name", 1, _of_text(file_name), deterministic=True)
        # Which strings are kept, and whether each stands for code alone.
        self._sql.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY, code INTEGER)")
        self._sql.execute("CREATE TEMP TABLE active (process INTEGER PRIMARY KEY)")

    def run(self) -> None:
        kept = [(table, rule) for table in self._copy.tables if (rule := _rule(table))]
        for table, rule in kept:
            if rule.owner in table.columns and not rule.owned:
                self._sql.execute(
                    f"INSERT OR IGNORE INTO active SELECT {_integer(rule.owner)} & {_PROCESS_MASK} "
                    f"FROM capture.{quoted(table.name)} AS row WHERE {_integer(rule.owner)} NOT NULL"
                )
        for table, rule in kept:
            self._keep(table, rule)
        for table in self._copy.tables:
            self._others(table)

    def _keep(self, table: Table, rule: _Kept) -> None:
        expressions = {name: _integer(name) for name in table.columns}
        clean = "code" if rule.code else "cleaned"
        if table.base == "PROCESSES":
            clean = "file_name"
        for name in rule.texts:
            expressions[name] = f"{clean}(row.{quoted(name)})"
        expressions.update(dict.fromkeys(_IDENTITIES, "NULL"))
        where = "1"
        if rule.owned and rule.owner in table.columns:
            where = f"{_integer(rule.owner)} & {_PROCESS_MASK} IN (SELECT process FROM active)"
        used = self._copy.insert(table, expressions, where)
        read = self._copy.rows(table)
        self._counts.add(
            table.name, read=read, used=used, dropped={"of another process": read - used}
        )
        for name in rule.strings:
            if name in table.columns:
                self._sql.execute(
                    f"INSERT INTO used SELECT DISTINCT {quoted(name)}, {int(rule.code)} "
                    f"FROM main.{quoted(table.name)} WHERE {quoted(name)} NOT NULL "
                    "ON CONFLICT DO UPDATE SET code = min(code, excluded.code)"
                )

    def _others(self, table: Table) -> None:
        if table.base == "StringIds" and {"id", "value"} <= table.columns.keys():
            self._strings(table)
        elif table.base in _META and {"name", "value"} <= table.columns.keys():
            self._meta(table)
        elif _rule(table) is None:
            rows = self._copy.rows(table)
            self._counts.add(table.name, read=rows, dropped={_DROPPED_TABLE: rows})

    def _strings(self, table: Table) -> None:
        value = (
            'CASE (SELECT code FROM used WHERE id = row."id") '
            'WHEN 1 THEN code(row."value") ELSE cleaned(row."value") END'
        )
        expressions = {"id": _integer("id"), "value": value}
        used = self._copy.insert(
            table, _only(table, expressions), 'row."id" IN (SELECT id FROM used)'
        )
        read = self._copy.rows(table)
        self._counts.add(
            table.name, read=read, used=used, dropped={"not named by a row": read - used}
        )

    def _meta(self, table: Table) -> None:
        fits = " OR ".join(
            f"substr(row.\"name\", 1, {len(head)}) = '{head}'" for head in _META[table.base]
        )
        expressions = {name: f"code(row.{quoted(name)})" for name in ("name", "value")}
        used = self._copy.insert(table, _only(table, expressions), fits)
        read = self._copy.rows(table)
        self._counts.add(
            table.name, read=read, used=used, dropped={"says where it ran": read - used}
        )


def _rule(table: Table) -> _Kept | None:
    return _ENUM if table.base.startswith("ENUM_") else _KEPT.get(table.base)


def _integer(name: str) -> str:
    """A column's number. SQLite lets text stand in any column, so its declared type says nothing."""
    column = f"row.{quoted(name)}"
    return f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} END"


def _only(table: Table, expressions: dict[str, str]) -> dict[str, str]:
    return {name: expressions.get(name, "NULL") for name in table.columns}


def _of_text(function: Callable[[str], str]) -> Callable[[object], str | None]:
    return lambda value: function(value) if isinstance(value, str) else None


def _secrets(copy: Rewriting) -> Iterator[str]:
    """Yield the names of hosts and users that the capture holds."""
    for base, where in _SECRETS:
        for table in copy.named(base):
            if not {"name", "value"} <= table.columns.keys():
                continue
            rows = copy.connection.execute(
                f"SELECT value FROM capture.{quoted(table.name)} WHERE {where}"
            )
            yield from (value.rpartition("=")[2] for (value,) in rows if isinstance(value, str))
