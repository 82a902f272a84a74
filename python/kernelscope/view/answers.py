"""Computes answers outside the event loop, unless nobody waits for them any more."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from kernelscope.errors import InvalidArgumentError, KernelscopeError, NotRecordedError
from kernelscope.report.json_document import dump
from kernelscope.report.names import safe
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters

Question: TypeAlias = Callable[[Trace, Parameters], object]
"""A question about a trace: returns JSON as bytes, or a value that can be written as JSON."""

_Subject = TypeVar("_Subject")

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
"""Handler of the requests of an address."""

_AT_ONCE = 2
_CLIENT_GONE = 499


class Desk:
    """Runs at most two questions at once in threads.

    The others wait, and are dropped if the client disconnects.
    """

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    def endpoint(
        self, question: Callable[[_Subject, Parameters], object], subject: Callable[[Request], _Subject]
    ) -> Endpoint:
        """Returns the endpoint that answers ``question`` about the ``subject`` of a request (a trace)."""

        async def answered(request: Request) -> Response:
            parameters = Parameters(request.query_params)
            return await self._answer(request, lambda: question(subject(request), parameters))

        return answered

    async def _answer(self, request: Request, work: Callable[[], object]) -> Response:
        if self._limiter is None:
            # It belongs to the event loop, which runs only now.
            self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        response = Response(status_code=_CLIENT_GONE)
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(leave)
            # A thread that has begun keeps its place until it is done: those of askers who left would add up.
            response = await anyio.to_thread.run_sync(_respond, work, limiter=self._limiter)
            group.cancel_scope.cancel()
        return response


def _respond(work: Callable[[], object]) -> Response:
    """The response with the answer, or with a sentence that says why there is none."""
    try:
        found = work()
        return as_json(found)
    except NotRecordedError as error:
        return as_json({"error": str(error)}, status=404)
    except InvalidArgumentError as error:
        return as_json({"error": str(error)}, status=400)
    except KernelscopeError as error:
        return as_json({"error": str(error)}, status=500)
    except BaseException as error:  # noqa: BLE001 - a panic of Polars is no Exception, and the page goes on
        text = f"this could not be computed ({type(error).__name__}: {safe(str(error))}). Please report it"
        return as_json({"error": text}, status=500)


def as_json(value: object, *, status: int = 200) -> Response:
    """Returns a response with ``value``, which is already JSON if it is bytes."""
    content = value if isinstance(value, bytes) else dump(value).encode()
    return Response(content, status_code=status, media_type="application/json")
