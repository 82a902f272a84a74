"""A server of S3 on loopback that fails when it is told to."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class StorageServer:
    """Moto's server in a thread, and a list of the requests that it got."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._application: Application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        # Else the body of an answer waits 40 ms for the head to be acknowledged.
        self._server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[str] = []
        self._failing: Callable[[str], bool] = str.isspace  # none
        self._left = 0
        self.halved = ""
        """End of the path of a file of which half is sent, with the length of all."""
        # Else it notices after half a second only that it is to end.
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        # Moto keeps what servers hold in the process.
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")).close()

    def fail(self, times: int, of: Callable[[str], bool]) -> None:
        """Answers the next requests, such as ``GET /bucket/key``, with 503."""
        self._left, self._failing = times, of

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        self.requests.append(request)
        if self._left and self._failing(request):
            self._left -= 1
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        answer = self._application(environ, start)
        if self.halved and request.startswith("GET") and request.endswith(self.halved):
            content = b"".join(answer)
            return [content[: len(content) // 2]]
        return answer

    def close(self) -> None:
        """Answers nobody any more."""
        self._server.shutdown()
        self._server.server_close()
