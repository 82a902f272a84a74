"""Addresses of the viewer: its pages and their questions."""

from collections.abc import Callable, Mapping
from importlib import resources
from typing import TypeAlias

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from kernelscope.errors import NotRecordedError
from kernelscope.trace import Trace
from kernelscope.view import (
    cluster,
    cluster_path,
    comparison,
    critical_path,
    details,
    flame,
    flame_comparison,
    levers,
    listing,
    overview,
    parallelism,
    roofline,
    search,
    selection,
    statements,
    tables,
    windows,
)
from kernelscope.view.answers import Desk, Endpoint, Question, as_json
from kernelscope.view.choice import Choice, Shown
from kernelscope.view.security import Guard, Hosts
from kernelscope.view.session import Pair, Session

QUESTIONS: dict[str, Question] = {
    "timeline": windows.described,
    "window": windows.window,
    "search": search.search,
    "hit": search.hit,
    "details": details.details,
    "cost": details.cost,
    "slack": critical_path.slack,
    "path": critical_path.path,
    "levers": levers.levers,
    "what_if": levers.what_if,
    "selection": selection.selection,
    "overview": overview.overview,
    "evidence": overview.evidence,
    "view": tables.view,
    "table": tables.table,
    "csv": tables.csv,
    "names": statements.names,
    "sql": statements.answer,
    "flame": flame.flame,
    "frame": flame.frame,
    "framed": flame.framed,
    "roofline": roofline.roofline,
}
"""Questions about the trace under ``/api/``. ``status`` and ``menu`` are answered before it is read."""

_OF_TWO = {
    "comparison": comparison.comparison,
    "table": comparison.table,
    "csv": comparison.csv,
    "events": comparison.events,
    "partners": comparison.partners,
    "flame": flame_comparison.flame,
    "frame": flame_comparison.frame,
}
"""Questions about two traces. Each of them also answers as one trace, below its number."""

_OF_MANY = {
    "listing": listing.listing,
    "table": listing.table,
    "csv": listing.csv,
    "cluster": cluster.cluster,
    "heat": cluster.heat,
    "opening": cluster.opening,
    "collective": cluster.collective,
    "rank_path": cluster_path.rank_path,
    "layout": parallelism.layout,
    "pipeline": parallelism.pipeline,
}
"""Questions about a list of traces. Each of them answers as one trace, below its number."""

_LONGEST_NUMBER = 9
_KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_SHARED = ("format.js", "elements.js", "theme.js", "theme.css")
"""Assets shared with the page of ``analyze --format html``."""

Files: TypeAlias = Mapping[str, Response]


def application(shown: Shown, *, token: str, hosts: Hosts, in_frames: bool) -> ASGIApp:
    """Returns the application that shows ``shown`` to clients with ``token``."""
    desk, files = Desk(), _files()
    if isinstance(shown, Pair):
        routes = _of_pair(shown, desk, files)
    elif isinstance(shown, Choice):
        routes = _of_choice(shown, desk, files)
    else:
        routes = _of_trace(lambda _: shown, desk, files)
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, NotRecordedError: _not_there})
    return Guard(app, token=token, hosts=hosts, in_frames=in_frames)


def _of_trace(
    session: Callable[[Request], Session], desk: Desk, files: Files, *, above: str | None = None
) -> list[BaseRoute]:
    """The addresses of the page of one trace, which is that of the ``session`` of a request.

    ``above`` is what the page of several is called that it belongs to.
    """

    async def status(request: Request) -> Response:
        told = session(request).status()
        return as_json(told if above is None else {**told, "above": above})

    async def menu(_request: Request) -> Response:
        # The views import much, which is done while the trace is read.
        return as_json(await anyio.to_thread.run_sync(tables.menu))

    def trace(request: Request) -> Trace:
        return session(request).trace

    asked = [Route(f"/api/{name}", desk.endpoint(question, trace)) for name, question in QUESTIONS.items()]
    return [Route("/api/status", status), Route("/api/menu", menu), *asked, *_loaded(files, "view.html")]


def _of_pair(pair: Pair, desk: Desk, files: Files) -> list[BaseRoute]:
    """The addresses of the page of two traces, and below their numbers those of each."""

    def session(request: Request) -> Session:
        return pair.session(request.path_params["number"])

    async def status(_request: Request) -> Response:
        return as_json(pair.status())

    asked = [
        Route(f"/api/{name}", desk.endpoint(question, lambda _: pair.traces))
        for name, question in _OF_TWO.items()
    ]
    each = Mount("/{number:int}", routes=_of_trace(session, desk, files, above="Both traces"))
    return [Route("/api/status", status), *asked, *_loaded(files, "compare.html"), each]


def _of_choice(choice: Choice, desk: Desk, files: Files) -> list[BaseRoute]:
    """The addresses of the page of many traces, and below their numbers those of each."""

    def session(request: Request) -> Session:
        number = str(request.path_params["number"])
        # Nothing but a number names a trace: no name of a file or a rank becomes a part of an address.
        if not (number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER):
            raise NotRecordedError("traces of the list have numbers, and this number does not exist")
        return choice.session(int(number))

    async def status(_request: Request) -> Response:
        return as_json(choice.status())

    asked = [
        Route(f"/api/{name}", desk.endpoint(question, lambda _: choice))
        for name, question in _OF_MANY.items()
    ]
    each = Mount("/{number}", routes=_of_trace(session, desk, files, above=choice.catalogue.name))
    return [Route("/api/status", status), *asked, *_loaded(files, "choose.html"), each]


def _loaded(files: Files, page: str) -> list[BaseRoute]:
    """The addresses of the files of a page."""
    # Nothing of an address becomes the path of a file: what can be loaded is in memory, under its name.
    named = {name: file for name, file in files.items() if not name.endswith(".html")}
    return [Route("/", _file(files[page])), *(Route(f"/{name}", _file(file)) for name, file in named.items())]


def _files() -> dict[str, Response]:
    """The files of the pages by name, ready to be sent."""
    own = resources.files("kernelscope.view").joinpath("assets")
    shared = resources.files("kernelscope.report.html").joinpath("assets")
    found = [*own.iterdir(), *(shared.joinpath(name) for name in _SHARED)]
    kinds = {file.name: _KINDS[file.name[file.name.rindex(".") :]] for file in found}
    return {file.name: Response(file.read_bytes(), media_type=kinds[file.name]) for file in found}


def _file(file: Response) -> Endpoint:
    async def sent(_request: Request) -> Response:
        return file

    return sent


async def _refused(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return as_json({"error": "the viewer has nothing at this address"}, status=status)


async def _not_there(_request: Request, error: Exception) -> Response:
    return as_json({"error": str(error)}, status=404)
