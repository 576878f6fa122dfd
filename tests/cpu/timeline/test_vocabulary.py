"""The vocabulary of API calls: real names of every vendor, with their suffixes, have their kind."""

from __future__ import annotations

import pytest

from launchkit.profiling.timeline.model import CALL_KINDS, CALL_LAYERS
from launchkit.profiling.timeline.vocabulary import api_name, call_kind, call_layer, capture_step

NAMES = {
    "launch": [
        "cudaLaunchKernel", "cudaLaunchKernel_v7000", "cudaLaunchKernel_ptsz_v7000",
        "cudaLaunchKernelExC_v11060", "cudaLaunchCooperativeKernel_v9000", "cuLaunchKernel",
        "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel",
        "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipModuleLaunchKernel", "hipLaunchKernel_spt",
        "zeCommandListAppendLaunchKernel", "urEnqueueKernelLaunch",
        "runFunction - job_prep_and_submit_for_execution",
    ],
    "graph_launch": ["cudaGraphLaunch_v10000", "cuGraphLaunch", "cuGraphLaunch_ptsz", "hipGraphLaunch"],
    "sync": [
        "cudaDeviceSynchronize_v3020", "cudaStreamSynchronize_ptsz", "cuEventSynchronize",
        "cuCtxSynchronize", "hipDeviceSynchronize", "zeEventHostSynchronize",
    ],
    "memcpy": ["cudaMemcpyAsync_v3020", "cuMemcpyHtoDAsync_v2", "hipMemcpyWithStream", "cudaMemcpy2D"],
    "memset": ["cudaMemsetAsync_v3020", "cuMemsetD8Async", "hipMemsetAsync"],
    "alloc": ["cudaMalloc_v3020", "cudaFree_v3020", "cudaHostAlloc", "cuMemAlloc_v2", "hipMalloc",
              "cuMemCreate", "cudaMallocAsync", "hipHostMalloc"],
    "other": [
        "cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaEventRecord", "cudaStreamWaitEvent_v3020",
        "cudaGraphInstantiate_v12000", "cuKernelGetAttribute", "cudaFuncSetLaunchBounds",
        "cudaStreamIsCapturing_v10000", "cuModuleGetLoadingMode", "aten::launch", "", "[unknown]",
        "cudaGraphKernelNodeGetAttribute", "hipCtxGetCurrent",
    ],
    "unknown_launch": ["cuLaunchTurboKernel", "cudaLaunchDevice_v13000", "hipLaunchFancyKernel",
                       "zeCommandListAppendLaunchNewKernel"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, each) for kind in NAMES for each in NAMES[kind]])
def test_a_name_has_its_kind(kind, name):
    assert call_kind(name) == kind


def test_every_kind_of_the_model_is_tried():
    assert set(NAMES) == set(CALL_KINDS.categories)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
        ("cudaMemcpy_ptds_v7000", "cudaMemcpy"),
        ("hipLaunchKernel", "hipLaunchKernel"),
        ("my_v2_kernel", "my_v2_kernel"),
    ],
)
def test_suffixes_of_version_and_default_stream_are_stripped(name, plain):
    assert api_name(name) == plain


@pytest.mark.parametrize(
    ("name", "layer"),
    [("cudaLaunchKernel", "runtime"), ("cuLaunchKernel", "driver"), ("hipLaunchKernel", "runtime"),
     ("hipModuleLaunchKernel", "driver"), ("zeCommandListAppendLaunchKernel", "driver"),
     ("customCall", "runtime")],
)  # fmt: skip
def test_a_name_has_its_layer(name, layer):
    assert call_layer(name) == layer
    assert layer in CALL_LAYERS.categories


def test_captures_of_a_stream_begin_and_end():
    steps = ["cudaStreamBeginCapture_v10000", "cuStreamEndCapture", "cudaStreamBeginCaptureToGraph",
             "cudaStreamIsCapturing"]  # fmt: skip
    assert [capture_step(name) for name in steps] == [1, -1, 1, 0]
