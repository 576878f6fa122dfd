"""Chrome traces as timelines: what becomes of each kind of event, with times to the ns."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter

import polars as pl
import pytest
from captures import public_sample

from launchkit.profiling.names import traced_name, untraced
from launchkit.profiling.timeline import analyse
from launchkit.profiling.timeline.chrome.reader import read_chrome
from launchkit.profiling.timeline.chrome.values import short_kernel_name

SAMPLES = [
    "hta_amd_mi250",
    "hta_cpu_only_no_gpu",
    "hta_event_sync",
    "hta_simple_add",
    "hta_triton_example",
]


def span(name="op", cat="cpu_op", ts=100, dur=50, pid=7, tid=7, **more):
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": ts,
        "dur": dur,
        "pid": pid,
        "tid": tid,
        **more,
    }


def launch(name="cuLaunchKernel", cat="cuda_driver", correlation=1, **more):
    return span(name, cat, args={"correlation": correlation}, **more)


def kernel(name="k", correlation=1, device=0, stream=7, **more):
    args = {"correlation": correlation, "device": device, "stream": stream, "context": 1}
    return span(name, "kernel", pid=device, tid=stream, args=args, **more)


@pytest.fixture
def read(tmp_path):
    def made(*events, **members):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events, **members}))
        return read_chrome(path)

    return made


def total(timeline):
    return timeline.counts["events"]


def test_times_are_exact_to_the_nanosecond_and_begin_at_the_first_event(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        '{"baseTimeNanoseconds": 1727743122000000000, "traceEvents": ['
        '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1739836029603187.439,"dur":0.001},'
        '{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":1739836029603190,"dur":2}]}'
    )
    timeline = read_chrome(path)
    rows = timeline.ranges.select("name", "start_ns", "end_ns").rows()
    assert rows == [("a", 0, 1), ("b", 2_561, 4_561)]
    assert timeline.source.utc_epoch_ns == 1727743122000000000 + 1739836029603187439
    assert timeline.source.duration_ns == 4_561


@pytest.mark.parametrize(("ts", "utc"), [(1_694_039_968_955_744, True), (2_413_669_096_090, False)])
def test_without_a_base_a_time_since_1970_is_utc_and_another_is_not(read, ts, utc):
    source = read(span(ts=ts)).source
    assert source.utc_epoch_ns == (ts * 1000 if utc else None)


def test_a_tritons_launch_is_a_driver_launch_and_its_kernel_has_its_process(read):
    timeline = read(
        launch(ts=100, dur=5), kernel("void a::b<int>(int)", ts=110, dur=3), span(ts=90, dur=40)
    )
    assert timeline.calls.select("name", "kind", "layer", "correlation", "process").rows() == [
        ("cuLaunchKernel", "launch", "driver", 1, 7)
    ]
    columns = ("name", "full_name", "kind", "process", "device", "stream", "start_ns", "end_ns")
    assert timeline.gpu.select(columns).rows() == [
        ("b", "void a::b<int>(int)", "kernel", 7, 0, 7, 20_000, 23_000)
    ]
    assert not timeline.source.host_only


@pytest.mark.parametrize(
    ("layer", "op"), [(None, None), (3, None), (-1, "ssd"), (None, "a b]"), (5, "%5B [op=c]")]
)
@pytest.mark.parametrize(
    "name",
    ["mixer", "mixer [layer=1]", "a [op=b]", "a [layer=3 op=c", "launchkit:x", "two\nlines", "]"],
)
def test_own_range_keeps_its_name_layer_and_op_through_a_trace(read, name, layer, op):
    timeline = read(span(traced_name(name, layer, op), "user_annotation"), span("mixer"))
    told = timeline.ranges.select("name", "domain", "category", "payload").rows()
    payload = None if layer is None else str(layer)
    assert sorted(told) == sorted(
        [(name, "launchkit", op or name, payload), ("mixer", "torch", "cpu_op", None)]
    )


def test_any_own_range_comes_back_from_a_trace():
    rng = random.Random(5)
    pieces = [" [", "]", "op=", "layer=3", "%", "%5B", "x", " ", ":", "\n", "launchkit:"]
    for _ in range(5_000):
        name, op = ("".join(rng.choices(pieces, k=rng.randrange(1, 6))) for _ in range(2))
        layer, op = rng.choice([None, -7, 12]), rng.choice([None, op])
        payload = None if layer is None else str(layer)
        assert untraced(traced_name(name, layer, op)) == (name, payload, op)


@pytest.mark.parametrize("text", ["mixer", "launchkit", "launchkit:", "other:mixer [layer=3]", ""])
def test_other_names_are_no_own_ranges(text):
    assert untraced(text) is None


def test_layers_and_ops_of_a_trace_are_rows_of_the_report(read):
    spans = [
        span(traced_name("mixer", layer, "ssd"), "user_annotation", ts=100 + layer * 60)
        for layer in range(3)
    ]
    found = analyse(read(*spans)).layers.select("layer", "slot", "total_ns").rows()
    assert found == [(0, "ssd", 50_000), (1, "ssd", 50_000), (2, "ssd", 50_000)]


def test_hip_and_graph_launches_count_and_an_unknown_one_is_reported(read):
    timeline = read(
        launch("hipModuleLaunchKernel", "cuda_runtime", 1),
        launch("cudaGraphLaunch_v10000", "cuda_runtime", 2, ts=200),
        launch("cuLaunchKernelFuture", "cuda_driver", 3, ts=300),
        kernel("a", 2, ts=210), kernel("b", 2, ts=230),
    )  # fmt: skip
    assert timeline.calls["kind"].to_list() == ["launch", "graph_launch", "unknown_launch"]
    assert timeline.calls["name"][1] == "cudaGraphLaunch"
    assert timeline.gpu["correlation"].to_list() == [2, 2]
    assert any("cuLaunchKernelFuture" in warning for warning in timeline.warnings)


def test_a_driver_call_inside_a_runtime_call_is_not_outermost(read):
    timeline = read(
        launch("cudaLaunchKernel", "cuda_runtime", 1, ts=100, dur=10),
        launch("cuLaunchKernel", "cuda_driver", 1, ts=102, dur=8),
        launch("cuLaunchKernel", "cuda_driver", 2, ts=111, dur=3),
        launch("cuLaunchKernel", "cuda_driver", 3, ts=101, dur=3, tid=8),
    )
    calls = timeline.calls.select("thread", "start_ns", "outermost").rows()
    assert calls == [(7, 0, True), (7, 2000, False), (7, 11000, True), (8, 1000, True)]


def test_equal_correlations_of_two_processes_go_by_the_device(read):
    events = []
    for rank in (0, 1):
        for call in range(4):
            ts, number = 100 + 10 * call, call if call < 2 else 10 * (rank + 1) + call
            events.append(launch(correlation=number + 1, ts=ts, dur=2, pid=70 + rank))
            events.append(kernel(correlation=number + 1, ts=ts + 3, dur=2, device=rank))
    timeline = read(*events)
    assert timeline.gpu.select("device", "process").unique().sort("device").rows() == [
        (0, 70),
        (1, 71),
    ]
    noted = total(timeline).noted
    assert noted["GPU work whose correlation several processes have"] == 4


def test_kernels_from_before_the_window_are_counted_and_kept(read):
    timeline = read(launch(correlation=5), kernel(correlation=4), kernel(correlation=5, ts=200))
    assert timeline.gpu.height == 2
    assert total(timeline).noted["without its launch call"] == 1


def test_a_kernel_that_begins_before_its_call_is_a_warning(read):
    timeline = read(launch(ts=100), kernel(ts=90))
    assert any("the clocks of host and GPU differ" in warning for warning in timeline.warnings)


def test_a_step_under_a_foreign_process_id_moves_to_the_one_that_calls(read):
    timeline = read(
        span("ProfilerStep#1", "user_annotation", pid=3100, tid=3100, dur=900),
        launch(pid=70, tid=70), launch(pid=70, tid=71, correlation=2),
    )  # fmt: skip
    assert timeline.ranges.select("process", "thread").rows() == [(70, 70)]


def test_begins_and_ends_pair_by_thread_and_by_id(read):
    def half(ph, ts, name=None, **more):
        return {"ph": ph, "ts": ts, "pid": 7, "tid": 7, **({"name": name} if name else {}), **more}

    timeline = read(
        half("B", 1, "outer"), half("B", 2, "inner"), half("E", 3), half("E", 9), half("E", 10),
        half("b", 4, "wide", cat="io", id="0x1"), half("e", 8, "wide", cat="io", id="0x1", tid=9),
        half("B", 11, "open"), span("last", ts=11, dur=4),
    )  # fmt: skip
    columns = ("name", "start_ns", "end_ns", "kind", "closed", "end_thread")
    assert timeline.ranges.select(columns).rows() == [
        ("outer", 0, 8000, "push_pop", True, None),
        ("inner", 1000, 2000, "push_pop", True, None),
        ("wide", 3000, 7000, "start_end", True, 9),
        ("last", 10000, 14000, "push_pop", True, None),
        ("open", 10000, 14000, "push_pop", False, None),
    ]
    assert total(timeline).dropped == {"ends without a begin": 1}
    assert total(timeline).noted["ranges that were never ended"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ts": None}, "without a usable time"),
        ({"ts": "soon"}, "without a usable time"),
        ({"ts": 2**70}, "without a usable time"),
        ({"ts": True}, "without a usable time"),
        ({"dur": -1}, "of negative duration"),
        ({"dur": []}, "without a usable duration"),
        ({"cat": "gpu_user_annotation"}, "GPU images of host annotations"),
        ({"ph": "Q"}, "of other phases"),
        ({"ph": ["X"]}, "of other phases"),
        ({"ph": "C"}, "counters"),
        ({"ph": "s"}, "arrows of flows"),
    ],
)
def test_what_cannot_be_used_is_counted_by_its_reason(read, change, reason):
    timeline = read({**span(), **change}, span())
    assert total(timeline).dropped == {reason: 1}
    assert (total(timeline).read, total(timeline).used) == (2, 1)
    assert timeline.ranges.height == 1


def test_ids_may_be_texts_numbers_in_text_or_missing(read):
    timeline = read(
        span("a", pid="12", tid="13"), span("b", pid="Spans", tid="x"), span("c", pid=None, tid=True),
        span("d", ts="101.5"), span("e", args=[1]), span("f", pid=2**80),
    )  # fmt: skip
    found = {name: (pid, tid) for pid, tid, name in timeline.ranges.select("process", "thread", "name").rows()}  # fmt: skip
    assert found["a"] == (12, 13)
    assert found["c"] == (-1, -1)
    assert found["d"] == found["e"] == (7, 7)
    assert found["f"] == (-1, 7)
    assert min(found["b"]) < -1
    names = dict(timeline.processes.select("process", "name").rows())
    assert names[found["b"][0]] == "Spans"
    assert total(timeline).noted["with their time as text"] == 1


def test_overheads_have_the_models_kinds(read):
    names = ["Command Buffer Full", "Lazy Function Loading", "Activity Buffer Request", "Who knows"]
    timeline = read(*(span(name, "overhead", ts=100 + 100 * n) for n, name in enumerate(names)))
    assert timeline.overheads["kind"].to_list() == ["queue_full", "lazy_loading", "flush", "other"]


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void at::native::(anonymous namespace)::cat<float, 4>(float*, at::X<int>)", "cat"),
        ("void at::native::elementwise<4, f(X&)::{lambda()#3}::operator()() const>(int)", "elementwise"),
        ("void cutlass::Kernel<cutlass_80_gemm>(cutlass_80::Params)", "Kernel"),
        ("Cijk_Ailk_Bljk_SB_MT64x64", "Cijk_Ailk_Bljk_SB_MT64x64"),
        ("<", "<"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_kernels_short_name_is_that_of_its_function(full, short):
    assert short_kernel_name(full) == short


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_the_rows_that_plain_python_finds(name):
    path = public_sample("chrome", f"{name}.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    timeline = read_chrome(path)

    def expected(*categories):
        return Counter(event["name"] for event in spans if event["cat"] in categories)

    calls, work = ("cuda_runtime", "cuda_driver"), ("kernel", "gpu_memcpy", "gpu_memset")
    assert Counter(timeline.ranges["name"]) == expected("cpu_op", "user_annotation")
    assert Counter(timeline.calls["name"]) == expected(*calls)
    assert Counter(timeline.gpu["full_name"]) == expected(*work)
    ns = [round(event["dur"] * 1000) for event in spans if event["cat"] in (*calls, *work)]
    lengths = pl.concat(
        [each["end_ns"] - each["start_ns"] for each in (timeline.calls, timeline.gpu)]
    )
    assert Counter(lengths) == Counter(ns)
    launched = [
        n for n in (*calls,) for event in spans if event["cat"] == n and "Launch" in event["name"]
    ]
    assert timeline.calls.filter(kind="launch").height == len(launched)
    assert total(timeline).read == len(events)
    assert not timeline.warnings
