"""Cuts a trace of ops.py to its cases, and writes what Nsight Compute counted of their kernels: counters.csv.

``join.py TRACE DRAM.csv TENSOR.csv FOLDER``. Both tools see the kernels of a case in the same order; where
number, grid, block or name differ, it ends with an AssertionError. README.md says how to record the inputs.
"""

import csv
import gzip
import json
import re
import sys
from pathlib import Path

FIELDS = "case kernel bytes_read bytes_written tensor_type tensor_flops ffma_instructions".split()
FFMA = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"
# Each of its thousand kernels is measured with cold caches, which says nothing of the layer.
NOT_COUNTED = ("lstm",)


def plain_name(kernel):
    """The name of a kernel without namespaces, templates and arguments, which the tools write differently."""
    kernel = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel).removeprefix("void ")
    return re.split(r"[<(]", kernel, maxsplit=1)[0].rpartition("::")[2]


def counted(path):
    """The cases that Nsight Compute saw, and its kernels in order: name, grid, block and metrics."""
    lines = Path(path).read_text(errors="replace").splitlines()
    cases = [line[5:] for line in lines if line.startswith("CASE ")]
    kernels = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        shape = {
            "kernel": plain_name(row["Kernel Name"]),
            "grid": row["Grid Size"],
            "block": row["Block Size"],
        }
        metrics = kernels.setdefault(int(row["ID"]), shape)
        metrics[row["Metric Name"]] = int(row["Metric Value"].replace(",", ""))
    return cases, [kernels[number] for number in sorted(kernels)]


def tensor_columns(metrics):
    """Type and operations of a kernel on tensor cores, and its scalar multiply-adds; empty if not counted."""
    if metrics is None:
        return ["", "", ""]
    used = {name: count for name, count in metrics.items() if "_path_tensor_src_" in name and count}
    assert len(used) < 2, used
    types = [re.split(r"[._]", name.partition("_src_")[2])[0] for name in used]
    return [*(types or [""]), sum(used.values()), metrics[FFMA]]


def main(trace, dram, tensor, folder):
    document = json.loads(gzip.decompress(Path(trace).read_bytes()))
    document.pop("traceName", None)
    events = document["traceEvents"]
    ranges = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"][5:])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("case:")
    )

    def case_of(event):
        return next((name for begin, end, name in ranges if begin <= event["ts"] <= end), None)

    events = [event for event in events if event.get("cat") != "overhead"]
    events = [e for e in events if e["ph"] in "Mi" or e.get("cat") == "Trace" or case_of(e)]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda event: event["ts"])
    moved, (of_tensors, products) = counted(dram)[1], counted(tensor)
    assert len(kernels) == len(moved), (len(kernels), len(moved))
    products, rows = iter(products), []
    for event, metrics in zip(kernels, moved, strict=True):
        case = case_of(event)
        product = next(products, None) if case in of_tensors else None
        for seen in (metrics, product or metrics):
            sizes = [str(tuple(event["args"][size])) for size in ("grid", "block")]
            assert [plain_name(event["name"]), *sizes] == [seen[key] for key in ("kernel", "grid", "block")]
        if case not in NOT_COUNTED:
            traffic = [metrics[f"dram__bytes_{way}.sum"] for way in ("read", "write")]
            rows.append([case, metrics["kernel"], *traffic, *tensor_columns(product)])
    with (Path(folder) / "counters.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([FIELDS, *rows])
    text = json.dumps({**document, "traceEvents": events}, separators=(",", ":"))
    (Path(folder) / "ops.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
