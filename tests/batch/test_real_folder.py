"""All real traces in one folder, in one batch, as nobody has sorted them."""

from __future__ import annotations

from pathlib import Path

from jobs import batch

import kernelscope as ks

# What the metadata say, read by hand: jobs in order of their first event (baseTimeNanoseconds + ts or
# utcEpochNs), each with its files in order of time and their ranks. Of the last ones, processes 851 and 251
# were recorded more than once; one recording of 251 is cut out of another. The database of two processes
# counts as one rank.
JOBS: list[list[tuple[str, int]]] = [
    [("resnet50-v100-2021", 0)],
    [("a100-control-rank3of8-2022", 3)],
    [("v100-test-rank1of2-2022", 1)],
    [("alexnet-cupti-counters-2023", 0)],
    [("sampled-rank0of128", 0), ("sampled-rank1of128", 1)],
    [("a100-pyper-rank0of16-2023", 0)],
    [("simple-add-critical-path", 0)],
    [("alexnet-critical-path", 0)],
    [("v100-ns-2024", 0)],
    [("event-sync-multi-stream", 0)],
    [("a100-nccl-rank0of2-2024", 0)],
    [("cpu-only-rank34", 34)],
    [("triton-a100", 0)],
    [("mi250-minitoy-rocm", 0)],
    [("owlv2-h100", 0)],
    [("qwen1.5-0.5b-h100", 0)],
    [("mtia-inference", 0)],
    [("eager-b200-rank0of8", 0)],
    [("resnet-act-checkpoint-mi300", 0)],
    [("vllm-decode-bs32", 0), ("vllm-decode-graph-mi300", 0)],
    [("h100-2gpu-emit-nvtx-2026.2 111", 0), ("h100-2gpu-emit-nvtx-2026.2 112", 1)],
    [("sglang-decode-bs32", 0), ("sglang-qwen3-8b-mi300", 0)],
    [("sglang-decode-graph-mi300", 0)],
    [("cuda-graphs-2025.5.2", 0)],
    [("cpu-nvtx-2023.4", 0)],
]

NAMELESS = {
    *("resnet50-v100-2021", "triton-a100", "mi250-minitoy-rocm", "owlv2-h100", "qwen1.5-0.5b-h100"),
    *("mtia-inference", "cuda-graphs-2025.5.2", "cpu-nvtx-2023.4"),
    *("h100-2gpu-emit-nvtx-2026.2 111", "h100-2gpu-emit-nvtx-2026.2 112"),
}
"""Neither these nor their names tell a rank."""


def expected_places() -> dict[str, tuple[str, int, int]]:
    places: dict[str, tuple[str, int, int]] = {}
    for number, job in enumerate(JOBS, 1):
        seen: dict[int, int] = {}
        for name, rank in job:
            window = seen[rank] = seen.get(rank, -1) + 1
            places[name] = "default" if number == 1 else f"default-{number}", rank, window
    return places


def test_all_real_traces_in_one_folder(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for kind in ("kineto", "nsys"):
        (tmp_path / "traces" / kind).symlink_to(shared / "traces" / kind)
    _, report = batch(tmp_path / "traces", tmp_path / "lake")
    assert (report.failed, report.waiting) == (0, 0), report.failures
    lake = ks.scan(tmp_path / "lake")
    names = {entry.key: Path(entry.source).name for entry in lake.entries}
    names = {key: name.removesuffix(".json.gz").removesuffix(".sqlite") for key, name in names.items()}
    names = {key: name.replace(".sqlite::process=", " ") for key, name in names.items()}
    found = {names[e.key]: (e.run, e.rank, e.window) for e in lake.entries}
    assert found == expected_places()
    assert {names[e.key] for e in lake.entries if e.rank_from == "order"} == NAMELESS
    # Every trace is there as reading gives it.
    for entry in lake.entries:
        path, _, process = entry.source.partition("::process=")
        tables = ks.read(Path(path), process=int(process) if process else None).tables
        if process:
            # Reading for one process leaves the names of all threads; a rank has those of its own.
            own = {name: tables[name].filter(pid=int(process)) for name in ("threads", "metadata")}
            tables |= own
        assert {name: frame.height for name, frame in tables.items() if frame.height} == {
            name: rows for name, (rows, _) in entry.files.items() if name != "communication_calls"
        }
        place = {"run": entry.run, "rank": entry.rank, "window": entry.window}
        theirs = lake.gpu_ops.filter(**place).collect().drop(list(place))
        assert theirs.drop("step").equals(tables["gpu_ops"].drop("step")), entry.source
    assert batch(tmp_path / "traces", tmp_path / "lake")[1].unchanged == len(found)
