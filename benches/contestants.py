"""What is measured side by side, and what each can be asked to read."""

from dataclasses import dataclass

GB = 10**9
MB = 10**6


@dataclass(frozen=True)
class Contestant:
    """A way to read a file.

    ``memory`` is what it takes per byte of JSON, so that a run can tell what does not fit into the
    machine before it tries.
    """

    task: str
    title: str
    home: str
    """Whose interpreter runs it: ``own`` has kernelscope, ``peers`` the others, ``rust`` is a program."""
    memory: float
    plain: bool = True
    gzip: bool = True
    limit_bytes: int | None = None
    limit_reason: str = ""
    example: tuple[str, ...] = ()
    """The example of the reader that ``rust`` runs, and its options."""

    def skip_reason(self, *, content_bytes: int, available_bytes: int) -> str | None:
        """Why it is not measured on a file of ``content_bytes`` of JSON, if so."""
        if self.limit_bytes is not None and content_bytes > self.limit_bytes * 1.1:
            return self.limit_reason
        need = self.memory * content_bytes
        if need > 0.85 * available_bytes:
            return f"needs about {need / GB:.0f} GB of memory, {available_bytes / GB:.0f} GB are free"
        return None


CONTESTANTS = (
    Contestant("kernelscope", "kernelscope.read", "own", memory=0.5),
    Contestant("kernelscope_one_thread", "kernelscope.read(threads=1)", "own", memory=0.5),
    Contestant(
        "inflate",
        "the inflater of kernelscope alone, nothing kept",
        "rust",
        memory=0.0,
        plain=False,
        example=("inflate",),
    ),
    Contestant(
        "inflate_kept",
        "the inflater of kernelscope alone, all in memory",
        "rust",
        memory=1.1,
        plain=False,
        example=("inflate", "--keep"),
    ),
    Contestant("libdeflate", "libdeflate alone, all in memory", "peers", memory=1.1, plain=False),
    Contestant("python_gzip", "Python's gzip alone", "peers", memory=0.0, plain=False),
    Contestant("orjson_loads", "orjson.loads", "peers", memory=8.0),
    Contestant(
        "simd_json",
        "simd-json in Rust, to its own values",
        "rust",
        memory=5.0,
        gzip=False,
        limit_bytes=4 * GB,
        limit_reason="counts bytes in 32 bits",
        example=("parse_values",),
    ),
    Contestant("json_load", "json.load", "peers", memory=6.5),
    Contestant(
        "hta",
        "HolisticTraceAnalysis",
        "peers",
        memory=15.0,
        limit_bytes=100 * MB,
        limit_reason="takes minutes above 100 MB",
    ),
    Contestant(
        "tb_profiler",
        "torch_tb_profiler",
        "peers",
        memory=15.0,
        limit_bytes=100 * MB,
        limit_reason="takes minutes above 100 MB",
    ),
)


@dataclass(frozen=True)
class Program:
    """A whole process, interpreter start included.

    ``arguments`` begins with a program of the environment of kernelscope; ``{trace}`` stands for the input.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    reads_trace: bool = False


_JSON_GZIP = "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"

PROGRAMS = (
    Program(
        "analyze",
        "kernelscope analyze",
        ("kernelscope", "analyze", "{trace}"),
        reads_trace=True,
    ),
    Program(
        "python_json",
        'python -c "json.load(gzip.open(...))"',
        ("python", "-c", _JSON_GZIP, "{trace}"),
        reads_trace=True,
    ),
    Program("help", "kernelscope --help", ("kernelscope", "--help")),
    Program("import_kernelscope", 'python -c "import kernelscope"', ("python", "-c", "import kernelscope")),
    Program(
        "import_read",
        'python -c "from kernelscope import read"',
        ("python", "-c", "from kernelscope import read"),
    ),
    Program("import_polars", 'python -c "import polars"', ("python", "-c", "import polars")),
    Program("python", 'python -c ""', ("python", "-c", "")),
)
