"""The viewer in Python: in a notebook cell, or in the browser."""

import os
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path

from kernelscope.batch.lake import Lake
from kernelscope.errors import InvalidArgumentError, ServerError
from kernelscope.escaping import for_html
from kernelscope.report.files import print_or_write
from kernelscope.trace import Trace
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks
from kernelscope.view.security import new_token
from kernelscope.view.server import address, listen, serve, server_of
from kernelscope.view.session import Pair, Session

_HOST = "127.0.0.1"
# Where the browser is on another machine than the notebook, which a server of this one does not reach.
_HUBS = (
    "JUPYTERHUB_SERVICE_PREFIX", "COLAB_RELEASE_TAG", "DATABRICKS_RUNTIME_VERSION", "KAGGLE_KERNEL_RUN_TYPE",
    "SAGEMAKER_SPACE_NAME",
)  # fmt: skip
_PATIENCE_S = 5.0


class Shown:
    """A shown trace, pair of traces, or list of ranks of a lake: at ``url``, or as a page without a server.

    ``url`` is null without a server. A notebook shows the object in the cell that returns it. The server
    stops with ``close()``, or with Python.
    """

    def __init__(
        self, trace: Trace | Lake, other: Trace | None, *, port: int, height: int, server: bool
    ) -> None:
        self._height = height
        self._trace = trace
        self._other = other
        self.url: str | None = None
        if server:
            self._begin(port)

    def _begin(self, port: int) -> None:
        token = new_token()
        if isinstance(self._trace, Lake):
            shown = Choice(LakeRanks(self._trace))
        else:
            session = _session(self._trace)
            shown = session if self._other is None else Pair(session, _session(self._other))
        self._server = server_of(shown, host=_HOST, token=token, in_frames=True)
        listening = listen(_HOST, port)
        self.url = address(listening, _HOST, token, in_frames=True)
        self._thread = threading.Thread(target=serve, args=(shown, self._server, listening), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Serves until an interrupt."""
        if self.url is None:
            return
        try:
            # A thread that is waited for without end lets no interrupt through.
            while self._thread.is_alive():
                self._thread.join(1)
        finally:
            self.close()

    def close(self) -> None:
        """Stops the server."""
        if self.url is not None:
            self._server.should_exit = True
            self._thread.join(_PATIENCE_S)
            self.url = None

    def _repr_html_(self) -> str:
        if self.url is not None:
            source = f'src="{for_html(self.url)}"'
        else:
            assert isinstance(self._trace, Trace)
            # Without an origin: what runs in it reaches nothing of the notebook.
            source = f'sandbox="allow-scripts allow-downloads" srcdoc="{_page(self._trace)}"'
        size = f'width="100%" height="{self._height}" style="border:0"'
        return f'<iframe {source} title="kernelscope" {size}></iframe>'

    def __repr__(self) -> str:
        return f"kernelscope's viewer at {self.url}" if self.url else "kernelscope's viewer, without a server"


def view(
    trace: Trace | Lake,
    other: Trace | None = None,
    *,
    port: int = 0,
    height: int = 720,
    server: bool | None = None,
) -> Shown:
    """Shows ``trace``, or compares it with a later ``other``, in a notebook cell or in the browser.

    For a lake, as opened by ``kernelscope.scan``, it shows a list of the ranks.

    A script waits here until it is interrupted; notebooks and interactive sessions continue. ``port`` is the
    port of the local server (0 for a free one), and ``height`` the height of a cell in pixels. Without a
    ``server``, a cell shows the page of ``analyze --format html``. This is the default on hubs, whose browser
    is on another machine, and where listening is not permitted.

    Raises: ServerError: the port is in use, or listening is not permitted outside a notebook.
        InvalidArgumentError: a server is needed but excluded, for two traces, a lake, or outside a notebook;
        or a lake is compared.

    Example: ``ks.view(ks.read("rank0.pt.trace.json.gz"))``
    """
    notebook = is_notebook()
    wanted = not (notebook and any(map(os.environ.get, _HUBS))) if server is None else server
    is_lake = isinstance(trace, Lake)
    if other is not None and (is_lake or isinstance(other, Lake)):
        raise InvalidArgumentError("lakes are not compared: Lake.trace(rank) returns the trace of one rank")
    if (other is not None or is_lake) and not wanted:
        what = "the ranks of a lake are shown" if is_lake else "two traces are compared"
        raise InvalidArgumentError(f"{what} through a server: pass server=True")
    try:
        shown = Shown(trace, other, port=port, height=height, server=wanted)
    except ServerError:
        if server or port or other is not None or is_lake or not notebook:
            raise
        shown = Shown(trace, other, port=port, height=height, server=False)
    if notebook:
        return shown
    if shown.url is None:
        raise InvalidArgumentError(
            "without a server only a notebook can show a trace; kernelscope analyze --format html "
            "writes a page"
        )
    if has_screen():
        webbrowser.open(shown.url)
    if not hasattr(sys, "ps1") and not sys.flags.interactive:
        print_or_write(f"{shown.url}\n", None)
        sys.stdout.flush()
        shown.wait()
    return shown


def _session(trace: Trace) -> Session:
    return Session(Path(trace.meta.path).name, lambda _: trace)


def _page(trace: Trace) -> str:
    """The page that needs no server, as the value of an attribute."""
    from kernelscope.report.html.page import write_page

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        write_page(trace, path)
        text = path.read_text(encoding="utf-8")
    # It is markup, whose own texts are safe: each line of it counts.
    quoted = text.replace("&", "&amp;").replace('"', "&quot;")
    return quoted.encode("ascii", "xmlcharrefreplace").decode()


def is_notebook() -> bool:
    """Returns whether values are shown in cells."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def has_screen() -> bool:
    """Returns whether a browser would open a window. Without a screen it may take over the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
