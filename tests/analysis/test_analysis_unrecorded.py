"""Activity that samples show and no recorded work explains: by hand, and beside a loop over a recording."""

from __future__ import annotations

from pathlib import Path

import kernelscope as ks
from kernelscope import analysis
from kernelscope.analysis.gpu.unrecorded import unrecorded_activity
from metrics_database import SHARE, MetricsDatabase, unpack_recorded
from twin import metrics as twin

TITLE = "GPUs run kernels for less than half of the time"


def drawn(path: Path, values: list[int], *, gpu: int = 0) -> ks.Trace:
    """A kernel of 50 ns on GPU 0 within the first of samples that hold for 100 ns each."""
    database = MetricsDatabase(path)
    database.range("step 0", 0, 400)
    database.call(1, 2)
    database.kernel(10, 60)
    for at, value in enumerate(values):
        database.sample(100 * at, value, gpu=gpu)
    return ks.read(database.close())


def test_samples_in_which_nothing_recorded_runs(tmp_path: Path) -> None:
    # Of the first two samples nobody knows which part is that of the kernel.
    trace = drawn(tmp_path / "some.sqlite", [90, 80, 40, 20])
    assert unrecorded_activity(trace).rows() == [(0, SHARE, 60, 50)]
    assert TITLE not in analysis.recommendations(trace)["title"].to_list()


def test_what_the_recorded_work_explains(tmp_path: Path) -> None:
    trace = drawn(tmp_path / "none.sqlite", [90, 80, 5, 0])
    assert unrecorded_activity(trace).is_empty()
    assert TITLE in analysis.recommendations(trace)["title"].to_list()
    # Nothing was recorded of the GPU that is sampled.
    assert unrecorded_activity(drawn(tmp_path / "other.sqlite", [90, 90], gpu=1)).is_empty()


def test_a_recording_whose_recorder_missed_launches(tmp_path: Path) -> None:
    path = unpack_recorded(tmp_path)
    trace, recording = ks.read(path), twin.Recording(path)
    work = trace.gpu_ops.select("start_ns", "dur_ns").rows()
    name = "SM Active [Throughput %]"
    usual = 500_002
    alone = [
        sample
        for sample in recording.samples[0, name]
        if not any(
            start < sample.end + usual and start + length > sample.start - usual for start, length in work
        )
    ]
    active = sum(sample.value * (sample.end - sample.start) / 100 for sample in alone)
    recorded = sum(length for _, length in work)
    assert unrecorded_activity(trace).rows() == [(0, name, round(active), recorded)]
    # The steps took 70 ms, and had nothing else to do.
    assert 55e6 < active < 65e6
    assert TITLE not in analysis.recommendations(trace)["title"].to_list()
