"""Exports with holes, twins and nonsense: each is read, and what cannot be used is counted."""

from __future__ import annotations

import nsys_exports as made
import polars as pl
import pytest

from launchkit.profiling.timeline import range_kernel_summary, read_timeline

RUNTIME, KERNELS, NVTX = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "NVTX_EVENTS",
)
FAR = 2**62 + 1


def read(folder, **tables):
    timeline = read_timeline(made.export(folder, **tables))
    for table, counts in timeline.counts:
        assert counts.read == counts.used + counts.dropped.total(), table
    return timeline


def warned(timeline, text):
    return any(text in warning for warning in timeline.warnings)


LAUNCH = {"calls": [made.call(10, 20, correlation=1)], "kernels": [made.kernel(30, 40, 1)]}


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (LAUNCH, "no NVTX events"),
        ({**LAUNCH, "nvtx": set(made.nvtx(0, 1, ""))}, "no NVTX events"),
        ({"nvtx": [made.nvtx(0, 5, "a")]}, "no CUDA API calls"),
        (
            {
                "calls": [made.call(10, 20, 6, correlation=1)],
                "graphs": [{**made.kernel(30, 40, 1), "graphId": 4, "graphExecId": 5}],
            },
            "only whole CUDA graphs",
        ),
    ],
    ids=["no NVTX table", "an empty NVTX table", "no API calls", "graphs only"],
)
def test_an_absent_table_is_a_warning(tmp_path, tables, text):
    assert warned(read(tmp_path, **tables), text)


def test_nvtx_rows_without_a_range_are_used_as_names_and_leave_no_range(tmp_path):
    rows = [made.nvtx(1, None, "launchkit", 75, domainId=1),
            made.nvtx(2, None, "op", 33, domainId=1, category=3), made.nvtx(9, None, "", 76)]  # fmt: skip
    timeline = read(tmp_path, nvtx=rows)
    assert (timeline.ranges.height, timeline.counts[NVTX].used) == (0, 3)


def domain(number, name, **more):
    return made.nvtx(1, None, name, 75, domainId=number, **more)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([domain(1, "launchkit")], "launchkit's domain"),
        ([domain(1, "launchkit"), made.nvtx(2, 5, "of torch")], "launchkit's domain"),
        ([domain(1, "mine")], "the NVTX domains"),
    ],
)
def test_python_ranges_that_nsys_dropped_are_missed(tmp_path, rows, told):
    assert warned(read(tmp_path, nvtx=rows), f"no range arrived in {told}")


@pytest.mark.parametrize(
    "rows",
    [
        [made.nvtx(2, 5, "a")],
        [domain(1, "NCCL"), made.nvtx(2, 5, "a")],
        [domain(1, "launchkit"), made.nvtx(2, 5, "a", domainId=1)],
        [domain(1, "launchkit"), made.nvtx(2, 5, "a", domainId=1),
         domain(1, "launchkit", globalTid=made.global_tid(pid=900))],
    ],
)  # fmt: skip
def test_a_domain_that_nobody_used_is_no_loss(tmp_path, rows):
    assert not warned(read(tmp_path, nvtx=rows), "no range arrived")


def test_names_that_are_not_in_stringids_are_told(tmp_path):
    timeline = read(tmp_path, nvtx=[made.nvtx(0, 5, None, textId=77)],
                    calls=[made.call(1, 2, 78, 1), made.call(3, 4, None, 2)],
                    kernels=[made.kernel(5, 6, 1, shortName=79, demangledName=79, mangledName=79)])  # fmt: skip
    noted = "with a name that is not in StringIds"
    assert [timeline.counts[table].noted[noted] for table in (NVTX, RUNTIME, KERNELS)] == [1, 2, 1]
    assert timeline.calls["name"].to_list() == ["[unknown]"] * 2
    assert timeline.gpu["name"].to_list() == ["[unknown]"]
    assert timeline.ranges["name"].to_list() == [""]


def test_ranges_without_a_name_are_told_and_kept(tmp_path):
    rows = [made.nvtx(0, 9, None), made.nvtx(1, 8, ""), made.nvtx(2, 7, "a")]
    timeline = read(tmp_path, nvtx=rows)
    assert timeline.ranges["name"].to_list() == ["", "", "a"]
    assert timeline.counts[NVTX].noted == {"without a name": 2}


def test_without_stringids_everything_is_still_read(tmp_path):
    path = tmp_path / "export.sqlite"
    tables = {name: rows for name, rows in made.tables(**LAUNCH).items() if name != "StringIds"}
    timeline = read_timeline(made.write_sqlite(path, tables))
    assert (timeline.calls.height, timeline.gpu.height) == (1, 1)


def test_a_text_of_its_own_goes_before_a_registered_one_and_a_schema_may_lack_either(tmp_path):
    rows = [made.nvtx(0, 9, "own", textId=2), made.nvtx(1, 8, "", textId=2), made.nvtx(2, 7, None)]
    assert read(tmp_path, nvtx=rows).ranges["name"].to_list() == ["own", "add", ""]
    old = [{key: value for key, value in rows[0].items() if key != "textId"}]
    (tmp_path / "old").mkdir()
    assert read(tmp_path / "old", nvtx=old).ranges["name"].to_list() == ["own"]


def test_defaults_of_old_exports_are_read_as_nothing(tmp_path):
    rows = [made.nvtx(5, -1, "open", endGlobalTid=0, category=0), made.nvtx(9, 9, "m", 34)]
    timeline = read(tmp_path, nvtx=rows, calls=[made.call(1, 2, correlation=0)])
    first = timeline.ranges.row(0, named=True)
    assert (first["name"], first["closed"], first["end_ns"]) == ("open", False, 1_000_000)
    assert (first["end_thread"], first["category"]) == (None, None)
    assert timeline.calls["correlation"].to_list() == [None]


def test_ranges_that_start_together_stand_the_longer_first_and_none_of_no_length_is_lost(tmp_path):
    rows = [made.nvtx(5, 5, "point"), made.nvtx(5, 7, "inner"), made.nvtx(5, 9, "outer")]
    assert read(tmp_path, nvtx=rows).ranges["name"].to_list() == ["outer", "inner", "point"]


def test_ranges_that_cross_in_one_domain_are_noted_and_each_keeps_its_calls(tmp_path):
    rows = [made.nvtx(0, 20, "a"), made.nvtx(10, 40, "b"), made.nvtx(15, 60, "b", domainId=1)]
    calls = [made.call(12, 14, correlation=1), made.call(50, 55, correlation=2)]
    kernels = [made.kernel(20, 21, 1), made.kernel(60, 62, 2)]
    timeline = read(tmp_path, nvtx=rows, calls=calls, kernels=kernels)
    assert timeline.counts[NVTX].noted["crossing another of their thread and domain"] == 1
    held = (
        range_kernel_summary(timeline).select("domain", "name", "total_ns").sort("total_ns", "name")
    )
    assert held.rows() == [("", "a", 1), ("", "b", 1), ("domain 1", "b", 2)]


def test_a_range_that_ends_on_another_thread_says_which(tmp_path):
    row = made.nvtx(1, 9, "request", 60, endGlobalTid=made.global_tid(tid=777))
    (found,) = read(tmp_path, nvtx=[row]).ranges.iter_rows(named=True)
    assert (found["kind"], found["thread"], found["end_thread"]) == ("start_end", made.TID, 777)


def test_one_correlation_in_two_processes_is_two_launches(tmp_path):
    other = {"globalTid": made.global_tid(600, 601)}
    calls = [made.call(1, 2, correlation=5), made.call(3, 4, correlation=5, **other)]
    kernels = [made.kernel(9, 19, 5), made.kernel(9, 12, 5, globalPid=made.global_pid(600))]
    ranges = [made.nvtx(0, 9, "mine"), made.nvtx(0, 9, "theirs", **other)]
    timeline = read(tmp_path, calls=calls, kernels=kernels, nvtx=ranges)
    assert timeline.counts[KERNELS].noted["without its launch call"] == 0
    held = range_kernel_summary(timeline).select("name", "process", "count", "total_ns")
    assert held.rows() == [("mine", made.PID, 1, 10), ("theirs", 600, 1, 3)]


def test_one_pid_on_two_machines_is_two_processes(tmp_path):
    far = {"globalTid": made.global_tid(vm=2 << 48)}
    timeline = read(tmp_path, calls=[made.call(1, 2), made.call(1, 2, **far)])
    assert timeline.calls["process"].n_unique() == 2
    assert warned(timeline, "several machines")


def test_kernels_of_a_graph_share_their_correlation(tmp_path):
    node = {"graphNodeId": 3 << 32 | 1}
    kernels = [made.kernel(start, start + 5, 8, **node) for start in (30, 40, 50)]
    timeline = read(tmp_path, calls=[made.call(10, 20, 6, 8)], kernels=kernels)
    assert timeline.gpu["graph_id"].to_list() == [3, 3, 3]
    assert timeline.calls["kind"].to_list() == ["graph_launch"]


def test_partners_that_are_missing_are_noted_on_both_sides(tmp_path):
    calls = [made.call(10, 20, correlation=1), made.call(30, 40), made.call(50, 60, correlation=3)]
    kernels = [made.kernel(90, 95, 3), made.kernel(91, 92, 4), made.kernel(93, 94, None)]
    timeline = read(tmp_path, calls=calls, kernels=kernels)
    assert timeline.counts[RUNTIME].noted["launches without GPU work"] == 2
    assert timeline.counts[KERNELS].noted["without its launch call"] == 2


def test_a_kernel_before_its_call_is_a_clock_that_differs(tmp_path):
    calls = [made.call(10, 20, correlation=1), made.call(30, 40, correlation=2)]
    kernels = [made.kernel(5, 8, 1), made.kernel(35, 50, 2)]
    timeline = read(tmp_path, calls=calls, kernels=kernels)
    assert timeline.counts[KERNELS].noted == {
        "starting before its launch call returns": 1,
        "starting before its launch call starts": 1,
    }
    assert warned(timeline, "clocks of host and GPU differ")


def test_impossible_times_are_dropped_by_reason_and_negative_ones_kept(tmp_path):
    calls = [made.call(-50, -40), made.call(9, 3), made.call(None, 3), made.call(4, None),
             made.call(5, FAR), made.call(2.0**70, 9), made.call("soon", 9), made.call(1, 2)]  # fmt: skip
    timeline = read(tmp_path, calls=calls)
    assert timeline.calls["start_ns"].to_list() == [-50, 1]
    assert timeline.counts[RUNTIME].dropped == {
        "ending before the start": 1,
        "with a time out of bounds": 1,
        "without a start": 3,
        "without an end": 1,
    }


def test_rows_that_stand_twice_are_counted_once(tmp_path):
    twice = [made.call(5, 9, correlation=4), made.call(5, 9, correlation=3)] * 2
    kernels = [made.kernel(20, 30, 4)] * 3
    timeline = read(tmp_path, calls=twice, kernels=kernels, nvtx=[made.nvtx(1, 2, "a")] * 2)
    assert sorted(timeline.calls["correlation"].to_list()) == [3, 4]
    dropped = [
        timeline.counts[table].dropped["equal to another"] for table in (RUNTIME, KERNELS, NVTX)
    ]
    assert dropped == [2, 2, 1]
    assert timeline.gpu["gpu_id"].to_list() == [0]


GPU = {"TARGET_INFO_GPU": [{"id": number, "name": name, "smCount": 132, "cuDevice": number}
                           for number, name in ((0, "left"), (3, "right"))]}  # fmt: skip


def test_devices_are_those_of_the_machine_where_the_export_has_the_map(tmp_path):
    places = [{"gpuId": 0, "cudaId": 0, "pid": 500}, {"gpuId": 3, "cudaId": 0, "pid": 600}]
    kernels = [made.kernel(1, 2), made.kernel(1, 2, globalPid=made.global_pid(600))]
    timeline = read(tmp_path, kernels=kernels, TARGET_INFO_CUDA_DEVICE=places, **GPU)
    assert dict(timeline.gpu.select("process", "device").iter_rows()) == {500: 0, 600: 3}
    assert timeline.devices.rows() == [(0, "left", 132), (3, "right", 132)]


def test_ordinals_that_several_processes_use_are_a_warning_without_the_map(tmp_path):
    kernels = [made.kernel(1, 2), made.kernel(1, 2, globalPid=made.global_pid(600))]
    assert warned(read(tmp_path, kernels=kernels, **GPU), "CUDA_VISIBLE_DEVICES")


def test_parts_of_one_gpu_keep_their_ordinals(tmp_path):
    places = [{"gpuId": 0, "cudaId": 0, "pid": 500}, {"gpuId": 0, "cudaId": 1, "pid": 500}]
    kernels = [made.kernel(1, 2), made.kernel(1, 2, deviceId=1)]
    timeline = read(tmp_path, kernels=kernels, TARGET_INFO_CUDA_DEVICE=places, **GPU)
    assert timeline.gpu["device"].to_list() == [0, 1]
    assert warned(timeline, "MIG")
    assert warned(timeline, "devices [1] are not in TARGET_INFO_GPU")


def test_types_that_are_not_known_are_warned_of_and_counted(tmp_path):
    overhead = {"start": 1, "end": 2, "globalTid": made.global_tid(), "correlationId": 1}
    rows = [{**overhead, "overheadType": number} for number in (8, 99)]
    timeline = read(tmp_path, nvtx=[made.nvtx(1, 2, "a", 200)], overheads=rows,
                    calls=[made.call(1, 2, 7)])  # fmt: skip
    assert timeline.counts[NVTX].dropped == {"of an unknown event type": 1}
    assert sorted(timeline.overheads["kind"].to_list()) == ["other", "queue_full"]
    assert timeline.calls["kind"].to_list() == ["unknown_launch"]
    for text in ("types that are not known: [200]", "kept as other: [99]", "cuTurboLaunchKernel"):
        assert warned(timeline, text), text


def test_a_later_schema_is_read_as_far_as_its_columns_are_known(tmp_path):
    version = [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.1.0"}]
    renamed = [{"begin": 1, "eventType": 59}]
    timeline = read(tmp_path, META_DATA_EXPORT=version, nvtx=renamed, **LAUNCH)
    assert timeline.calls.height == 1
    assert warned(timeline, "schema 4.1.0 is not known")
    assert warned(timeline, "NVTX_EVENTS has no column start")


def test_tables_with_a_version_in_their_name_are_found(tmp_path):
    rows = {"CUPTI_ACTIVITY_KIND_RUNTIME_V2": [made.call(1, 2)],
            "CUPTI_ACTIVITY_KIND_RUNTIME_V3": [made.call(3, 4), made.call(5, 6)]}  # fmt: skip
    assert read(tmp_path, **rows).calls["start_ns"].to_list() == [3, 5]


def test_a_driver_call_within_a_runtime_call_is_not_outermost(tmp_path):
    calls = [made.call(10, 50), made.call(12, 40, 4, eventClass=1), made.call(50, 50)]
    timeline = read(tmp_path, calls=calls)
    assert timeline.calls.select("name", "layer", "outermost").rows() == [
        ("cudaLaunchKernel", "runtime", True),
        ("cuLaunchKernelEx", "driver", False),
        ("cudaLaunchKernel", "runtime", True),
    ]


def test_only_processes_with_events_are_listed(tmp_path):
    listed = [
        {"globalPid": made.global_pid(pid), "pid": pid, "name": f"/opt/bin/p{pid}"}
        for pid in (1, 500)
    ]
    timeline = read(tmp_path, PROCESSES=listed, **LAUNCH)
    assert timeline.processes.rows() == [(500, "p500", None)]
    assert timeline.counts["PROCESSES"].dropped == {"without an event": 1}


def test_a_clock_that_was_shifted_is_taken_back(tmp_path):
    start = [{"utcEpochNs": 1_700_000_000_000_000_000}]
    shift = [{"name": "EXPORT_PARAM_TIME_SHIFT", "value": "500"}]
    timeline = read(
        tmp_path, TARGET_INFO_SESSION_START_TIME=start, META_DATA_EXPORT=shift, **LAUNCH
    )
    assert timeline.source.utc_epoch_ns == 1_700_000_000_000_000_000 - 500
    assert warned(timeline, "does not say its schema version")
    assert timeline.gpu.select(pl.len()).item() == 1
