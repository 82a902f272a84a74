"""What to do about a GPU that waits, by what it waits for, given what the program does already."""

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
"""By cause of a wait, the rule that speaks about it."""

WAITED_FOR = {
    "launch": "launches",
    "host": "a host that did something else",
    "sync": "the host after it had waited for the GPU",
    "data": "data",
    "queue": "events, copies or their turn",
    "graph": "the next node of a graph",
    None: "work whose launch is not known",
}
"""By cause of a wait, what the GPU waited for, in words."""

_ENGINES = {"vLLM": r"vllm::|^vllm|^_C_cache_ops::", "SGLang": r"^sglang|sgl_kernel"}
_REPLAYING = {
    "vLLM": (
        "Serve without --enforce-eager (enforce_eager=False), so that steps are replayed as CUDA graphs; "
        "those of more tokens than the largest of cudagraph_capture_sizes never are."
    ),
    "SGLang": (
        "Serve without --disable-cuda-graph, so that decoding is replayed as CUDA graphs, and with a "
        "--cuda-graph-max-bs that covers the batch."
    ),
}
_STATED = {
    "copies": (
        "Keep on the GPU what every step copies to it again, and copy the rest ahead, on a stream of its own "
        "with non_blocking=True, while kernels run."
    ),
    "data": "Give the DataLoader more workers (num_workers) and let them prefetch, or make samples cheaper.",
    "sync": "Keep values on the GPU: no .item(), .cpu() or print in a step; copy with non_blocking=True.",
    "queue": (
        "The work had been launched in time: see which event or copy its stream waits for (wait_stream, "
        "wait_event), and leave out what need not be waited for."
    ),
    "graph": (
        "Measure replays where nobody records their nodes (CUDA events around them, nsys "
        "--cuda-graph-trace=graph) before anything is changed: recording each node slows them, and nothing "
        "tells how much of these gaps that made."
    ),
    None: "Begin to record before the work is launched, and record the host, too, to see what it waits for.",
}


def remedy(facts: Facts, cause: str | None) -> str:
    """What to do about a GPU that waits for ``cause``."""
    if cause == "launch":
        return fewer_launches(facts)
    if cause == "host":
        return other_work(facts)
    return _STATED[cause]


def serving_engine(facts: Facts) -> str | None:
    """The engine that serves a model in the trace; None where there is none that is known."""
    return next((name for name, names in _ENGINES.items() if facts.any_named(names)), None)


def fewer_launches(facts: Facts) -> str:
    """How to launch less often, or at once."""
    engine = serving_engine(facts)
    if engine is not None and not facts.graph_launches and not facts.captures_graphs:
        return _REPLAYING[engine]
    if facts.graph_launches:
        first = "Some of the work is replayed as graphs already: capture what is launched beside them, too."
    elif facts.is_compiled:
        first = 'Replay what is compiled as graphs: torch.compile(mode="reduce-overhead").'
    else:
        first = (
            "Replay the kernels of a step as a CUDA or HIP graph (torch.cuda.make_graphed_callables, "
            'torch.compile(mode="reduce-overhead")), or fuse them.'
        )
    return first + (" A larger batch gives each launch more to do." if facts.may_grow else "")


def other_work(facts: Facts) -> str:
    """What to do about a host that does not launch."""
    if facts.captures_graphs:
        return "Capture graphs before the steps that are recorded, and record their replays."
    if facts.has_frames:
        seen = "See in the Python frames"
    elif facts.trace.meta.format == "kineto":
        seen = "Record with with_stack=True to see"
    else:
        seen = "Record with nsys profile --python-sampling=true to see"
    return f"{seen} what the program does there; move it out of the step or to another thread."


def slow_call(name: str) -> str:
    """What to do about a runtime call that does not return for long."""
    first = "The first call of its kind sets the driver up: run a few steps before those that are recorded."
    if "Memcpy" in name:
        return f"Copy from pinned memory with non_blocking=True, so that the call returns at once. {first}"
    return first
