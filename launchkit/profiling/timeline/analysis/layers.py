"""Layers of a model and the slots of a layer, by names of ranges and kernels. Above attribution.

A layer is a number in a range's name (``layer3``, ``model.layers.3.mixer``), or the layer that
``launchkit.annotate`` was given. A slot is what a part of a layer does, by the first of ``SLOTS``
whose pattern is found in the op or name of a range or in a kernel's name. Ranges inside another
take its layer, and its slot where they have none.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.names import DOMAIN
from launchkit.profiling.timeline.analysis.attribution import by_name
from launchkit.profiling.timeline.analysis.nesting import Nesting, innermost_at

SLOTS: tuple[tuple[str, str], ...] = (
    ("conv1d", r"conv1d"),
    ("ssd.chunk_cumsum", r"chunk_cumsum"),
    ("ssd.chunk_state", r"chunk_state"),
    ("ssd.state_passing", r"state_passing"),
    ("ssd.bmm", r"bmm_chunk|chunk_bmm"),
    ("ssd.chunk_scan", r"chunk_scan_(fwd|bwd)"),
    ("ssd", r"(^|[^a-z])ssd|mamba_?(chunk|split|ssm|mixer|layer)|chunk_scan"),
    ("state_update", r"state_update|selective_scan_update|ssm_step"),
    ("selective_scan", r"selective_scan"),
    ("state_copy", r"state_copy|copy_states|(final|initial)_states|write.?back"),
    ("linear_attention", r"delta_rule|(^|[^a-z])(gla|kda|gdn|rwkv\d?|hgrn)([^a-z]|$)|retention|linear_attn"),
    ("collective", r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_kernel"),
    ("attention", r"flash|fmha|attention|attn|sdpa|paged_kv|mla_decode"),
    ("moe", r"(^|[^a-z])moe|expert|topk_gating|grouped_gemm"),
    ("norm", r"(layer|rms|group)_?norm"),
    ("rope", r"rotary|rope([^a-z]|$)"),
    ("activation", r"silu|gelu|swiglu|act_and_mul"),
    ("embedding", r"embedding"),
    ("sampling", r"sampl(e|ing)|argmax|top_?[kp]([^a-z]|$)|softmax"),
    ("proj", r"gemm|nvjet|cublas|cutlass|xmma|splitk|(in|out|up|down|gate|qkv|[qkvo])_proj|linear|(add)?mm([^a-z]|$)|matmul"),
    ("copy", r"memcpy|memset|copy|fill"),
    ("elementwise", r"elementwise|vectorized|reduce_kernel|triton_(poi|red|per)|index|gather|scatter"),
)  # fmt: skip
"""Slots and the patterns (ignoring case) of names that belong to them; the first that fits counts."""

_LAYER = r"(?i)(?:^|[^a-z])(?:layers?|blocks?)[ ._#:=\[-]*(\d+)"


def slot_of(name: pl.Expr) -> pl.Expr:
    """Return the slot of a name, null where no pattern is found in it."""
    return pl.coalesce(
        pl.when(name.str.contains(f"(?i){pattern}")).then(pl.lit(slot)) for slot, pattern in SLOTS
    )


def placed(nesting: Nesting) -> pl.DataFrame:
    """Return by ``order`` the ``op``, ``layer`` and ``slot`` of ranges that nest, inherited ones too."""
    ranges = nesting.ranges
    op = pl.when(pl.col("domain") == DOMAIN).then("category")
    given = pl.when(pl.col("domain") == DOMAIN).then("payload").cast(pl.Int64, strict=False)
    named = pl.col("name").str.extract(_LAYER, 1).cast(pl.Int64, strict=False)
    own = ranges.select(
        "order", "parent", "depth", op=pl.coalesce(op, "name"), layer=pl.coalesce(given, named)
    )
    slots = own.select(pl.col("op").unique()).with_columns(slot=slot_of(pl.col("op")))
    own = own.join(slots, on="op", how="left", maintain_order="left")
    return _inherited(own).select("order", "op", "layer", "slot")


def _inherited(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill ``layer`` and ``slot`` from the nearest range around that has one."""
    # Each round looks twice as far out: as many rounds as the depth has binary digits.
    for _ in range(int(rows.get_column("depth").max() or 0).bit_length()):  # type: ignore[arg-type]
        outer = rows.select("layer", "slot", "parent")[rows.get_column("parent")]
        rows = rows.with_columns(
            layer=pl.coalesce("layer", outer["layer"]),
            slot=pl.coalesce("slot", outer["slot"]),
            parent=outer["parent"],
        )
    return rows


def layer_table(
    instances: pl.DataFrame, calls: pl.DataFrame, nesting: Nesting, places: pl.DataFrame
) -> pl.DataFrame:
    """Return what each slot of each layer costs, by ``layer`` and ``slot`` (null: none is known).

    ``total_ns``: time of the host, the sum of ``python_ns``, ``api_ns`` and ``sync_ns``, each
    exclusive, so that rows add up; ``launches``, ``kernels``, ``gpu_ns`` and ``stall_ns`` of the
    calls made there. A call outside any range with a slot takes that of its kernel.
    """
    key = ["layer", "slot"]
    host = instances.filter("closed").join(places, on="order").group_by(key).agg(
        pl.len().alias("count"),
        pl.col("python_ns").sum(), api_ns=pl.col("exclusive_api_ns").sum(),
        sync_ns=pl.col("exclusive_sync_ns").sum(),
    )  # fmt: skip
    made = _calls_by_place(calls, nesting, places).group_by(key).agg(
        pl.col("launches", "kernels", "gpu_ns", "stall_ns").cast(pl.Int64).sum()
    )  # fmt: skip
    rows = host.join(made, on=key, how="full", coalesce=True, nulls_equal=True)
    figures = [name for name in rows.columns if name not in key]
    rows = rows.with_columns(pl.col(figures).fill_null(0))
    total = pl.col("python_ns") + pl.col("api_ns") + pl.col("sync_ns")
    return rows.select(
        *key, "count", total.alias("total_ns"), *figures[1:]
    ).sort(*key, nulls_last=True)  # fmt: skip


def _calls_by_place(calls: pl.DataFrame, nesting: Nesting, places: pl.DataFrame) -> pl.DataFrame:
    at_work = calls.filter((pl.col("launches") > 0) | (pl.col("gpu_ops") > 0))
    tops = innermost_at(at_work, nesting.segments, "start_ns")
    kernels = at_work.select(pl.col("kernel").unique()).with_columns(
        kernel_slot=slot_of(pl.col("kernel"))
    )
    rows = at_work.select("kernel", "launches", "kernels", "gpu_ns", "stall_ns").hstack([tops])
    rows = rows.join(places, left_on="top", right_on="order", how="left")
    rows = rows.join(kernels, on="kernel", how="left", nulls_equal=True)
    return rows.with_columns(slot=pl.coalesce("slot", "kernel_slot"))


def op_table(instances: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges by op, as ``attribution.by_name`` does by name: ``name``, ``slot``, figures.

    An op is what ``launchkit.annotate`` was given as such; of other ranges it is the name. Ranges
    without a slot of their own or around them are none.
    """
    ops = instances.join(places, on="order").filter(pl.col("slot").is_not_null())
    return by_name(ops.with_columns(name="op"), ["name", "slot"])
