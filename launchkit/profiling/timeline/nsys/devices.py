"""The GPUs of an export: device 0 of a process need not be the first. Above the model."""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.nsys.tables import Export

_GPUS = {"id": pl.Int64, "cuDevice": pl.Int64, "name": pl.String, "smCount": pl.Int64}
_MAP = dict.fromkeys(("gpuId", "cudaId", "pid"), pl.Int64)


def place_devices(export: Export, gpu: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the GPU work with its machine's GPU numbers in ``device``, and the table of devices.

    ``gpu`` has process numbers, and in ``device`` the ordinals of each process. Without a map of
    the export the ordinals stay, with a warning where several processes use one.
    """
    gpus = export.read("TARGET_INFO_GPU", _GPUS)
    known = export.read("TARGET_INFO_CUDA_DEVICE", _MAP).drop_nulls()
    places = known.unique(["pid", "cudaId"], keep="first", maintain_order=True)
    parts = places.filter(pl.struct("pid", "gpuId").is_duplicated())
    if parts.height:
        export.warn("several CUDA devices are parts of one GPU (MIG): devices keep their ordinals")
        places = places.clear()
    moved = _moved(gpu, places) if places.height else gpu.with_columns(gpuId=pl.lit(None, pl.Int64))
    _warn_of_shared(export, moved)
    by_ordinal = pl.coalesce("cuDevice", "id") if not places.height else pl.col("id")
    moved = moved.with_columns(device=pl.coalesce("gpuId", "device")).drop("gpuId")
    names = gpus.select(device=by_ordinal, name="name", sm_count="smCount").drop_nulls("device")
    return moved, _used(export, moved, names.unique("device", keep="first", maintain_order=True))


def _moved(gpu: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    by_process = places.rename({"pid": "process", "cudaId": "device"})
    return gpu.join(by_process, on=["process", "device"], how="left", maintain_order="left")


def _warn_of_shared(export: Export, moved: pl.DataFrame) -> None:
    guessed = moved.filter(pl.col("gpuId").is_null()).select("process", "device").unique()
    shared = guessed.filter(pl.col("device").is_duplicated())["device"].unique().sort().to_list()
    if shared:
        listed = ", ".join(map(str, shared))
        export.warn(
            f"several processes use a CUDA device {listed}, and the export does not say whether it is "
            "the same GPU: with CUDA_VISIBLE_DEVICES it need not be"
        )


def _used(export: Export, moved: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    used = moved.select("device").unique().sort("device")
    devices = used.join(names, on="device", how="left", maintain_order="left")
    nameless = devices.filter(pl.col("name").is_null())["device"].to_list()
    if nameless and names.height:
        export.warn(f"devices {nameless} are not in TARGET_INFO_GPU: they have no name")
    return devices if devices.height else names
