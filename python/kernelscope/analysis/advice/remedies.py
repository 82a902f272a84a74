"""Remedies for a GPU that waits, by the cause of the wait and the state of the program."""

from kernelscope.analysis.advice.facts import Facts

RULE_OF = {
    "copies": "exposed_copies",
    "data": "data_loading",
    "launch": "launch_bound",
    "host": "host_busy",
    "sync": "synchronising_calls",
    "queue": "gpu_idle",
    "graph": "gpu_idle",
    None: "gpu_idle",
}
"""Rule about each cause of a wait."""

WAITED_FOR = {
    "launch": "launches",
    "host": "a host busy with other work",
    "sync": "the host after it had waited for the GPU",
    "data": "data",
    "queue": "events, copies or their position in the queue",
    "graph": "the next node of a graph",
    None: "operations with an unknown launch",
}
"""Description of each cause of a wait."""

_ENGINES = {"vLLM": r"vllm::|^vllm|^_C_cache_ops::", "SGLang": r"^sglang|sgl_kernel"}
_REPLAYING = {
    "vLLM": (
        "Serve without --enforce-eager (enforce_eager=False), so that steps are replayed as CUDA "
        "graphs. Steps with more tokens than the largest of cudagraph_capture_sizes are never "
        "replayed."
    ),
    "SGLang": (
        "Serve without --disable-cuda-graph, so that decode steps are replayed as CUDA graphs, and "
        "with a --cuda-graph-max-bs that covers the batch."
    ),
}
_STATED = {
    "copies": (
        "Keep data on the GPU that every step copies again. Copy the rest in advance with "
        "non_blocking=True on a separate stream, while kernels run."
    ),
    "data": "Give the DataLoader more workers (num_workers), enable prefetching, or make samples cheaper.",
    "sync": "Keep values on the GPU: no .item(), .cpu() or print in a step. Copy with non_blocking=True.",
    "queue": (
        "The operation had been launched in time. Find the event or copy its stream waits for "
        "(wait_stream, wait_event), and remove waits that are not needed."
    ),
    "graph": (
        "Before changing anything, measure replays without recording their nodes (CUDA events around "
        "them, nsys --cuda-graph-trace=graph). Recording each node slows replays, and the trace does "
        "not show the share of these gaps that this caused."
    ),
    None: "Start recording before the operations are launched, and record the host to see why it is late.",
}


def remedy(facts: Facts, cause: str | None) -> str:
    """Returns the remedy for a GPU that waits for ``cause``."""
    if cause == "launch":
        return fewer_launches(facts)
    if cause == "host":
        return other_work(facts)
    return _STATED[cause]


def serving_engine(facts: Facts) -> str | None:
    """Returns the engine that serves a model in the trace, or None if there is no known one."""
    return next((name for name, names in _ENGINES.items() if facts.any_named(names)), None)


def fewer_launches(facts: Facts) -> str:
    """Returns how to launch less often, or everything at once."""
    engine = serving_engine(facts)
    if engine is not None and not facts.graph_launches and not facts.captures_graphs:
        return _REPLAYING[engine]
    if facts.graph_launches:
        first = "Some operations are replayed as graphs already: capture the launches between them, too."
    elif facts.is_compiled:
        first = 'Replay compiled regions as graphs: torch.compile(mode="reduce-overhead").'
    else:
        first = (
            "Replay the kernels of a step as a CUDA or HIP graph (torch.cuda.make_graphed_callables, "
            'torch.compile(mode="reduce-overhead")), or fuse them.'
        )
    return first + (" A larger batch makes each launch do more." if facts.may_grow else "")


def other_work(facts: Facts) -> str:
    """Returns the remedy for a host that is busy with other work."""
    if facts.captures_graphs:
        return "Capture graphs before the recorded steps, and record their replays."
    if facts.has_frames:
        seen = "See the Python frames for"
    elif facts.trace.meta.format == "kineto":
        seen = "Record with with_stack=True to see"
    else:
        seen = "Record with nsys profile --python-sampling=true to see"
    return f"{seen} the code that runs there. Move it out of the step or to another thread."


def slow_call(name: str) -> str:
    """Returns the remedy for a runtime call that takes long to return."""
    first = "The first call of its kind initialises the driver: run a few steps before recording."
    if "Memcpy" in name:
        return (
            f"Copy from pinned memory with non_blocking=True, so that the call returns immediately. {first}"
        )
    return first
