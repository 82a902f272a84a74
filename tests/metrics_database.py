"""Databases of nsys with sampled GPU metrics, for tests."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from nsys_database import Database

KIND = 0x1000100000000
"""A type id of GPU metrics, but for the GPU in its low bits."""
SHARE, CLOCK = "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"
NAMES = {3: SHARE, 4: CLOCK}
SAMPLES = "rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER"
NAMED = "typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT"
GPUS = "id INTEGER, name TEXT, pwGpuId INTEGER, cuDevice INTEGER"


RECORDED = Path(__file__).parent / "recorded" / "h200"


def unpack_recorded(folder: Path, name: str = "metrics") -> Path:
    """The database of this name that was recorded on an H200."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((RECORDED / f"{name}.sqlite.gz").read_bytes()))
    return path


class MetricsDatabase(Database):
    """A database of nsys with tables of GPU metrics."""

    def __init__(
        self,
        path: Path,
        *,
        without: Collection[str] = (),
        schema: Mapping[str, str] | None = None,
        names: Mapping[int, str] = NAMES,
        gpus: Collection[int] = (0, 1),
    ) -> None:
        tables = {"GPU_METRICS": SAMPLES, "TARGET_INFO_GPU_METRICS": NAMED, **(schema or {})}
        super().__init__(path, without=list(without), schema=tables)
        if "TARGET_INFO_GPU_METRICS" in without:
            return
        for gpu in gpus:
            for metric, name in names.items():
                values = {"typeId": KIND | gpu, "metricId": metric, "metricName": name, "typeName": "GPU"}
                known = {
                    column: value
                    for column, value in values.items()
                    if column in tables["TARGET_INFO_GPU_METRICS"]
                }
                self.insert("TARGET_INFO_GPU_METRICS", **known)

    def sample(self, at: Any, value: Any, *, gpu: int = 0, metric: Any = 3, **changes: Any) -> int:
        values = {"timestamp": at, "typeId": KIND | gpu, "metricId": metric, "value": value}
        return self.insert("GPU_METRICS", **{**values, **changes})
