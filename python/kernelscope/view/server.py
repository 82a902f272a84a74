"""Listens on an address of this machine and serves the viewer until it is interrupted."""

import errno
import signal
import socket
import threading

import uvicorn

from kernelscope.errors import ServerError
from kernelscope.view.app import application
from kernelscope.view.choice import Shown
from kernelscope.view.security import EVERY_ADDRESS, Hosts

_GRACE_S = 1
_MOST_CONNECTIONS = 64
_IDLE_S = 30


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on ``host`` and ``port``, a free one for 0.

    Raises: ServerError: the port is in use, or there is no such address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
        # Connections inherit it. Else the body of an answer waits 40 ms for the head to be acknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} of {host} is in use by another program; choose another with --port"
        elif error.errno == errno.EACCES:
            text = f"no permission for port {port} of {host}; choose one of at least 1024 with --port"
        else:
            text = f"cannot listen on {host} ({error.strerror}); --host needs an address of this machine"
        raise ServerError(text) from None


def address(listening: socket.socket, host: str, token: str, *, in_frames: bool = False) -> str:
    """Returns the address that opens the viewer in a browser, or ``in_frames`` of other pages."""
    name = socket.gethostname() if host in EVERY_ADDRESS else host
    name = f"[{name}]" if ":" in name else name
    place = f"{token}/" if in_frames else f"?token={token}"
    return f"http://{name}:{listening.getsockname()[1]}/{place}"


def server_of(shown: Shown, *, host: str, token: str, in_frames: bool = False) -> uvicorn.Server:
    """Returns the server of the viewer, which runs until ``should_exit`` is set or it is interrupted.

    ``in_frames`` of other pages, such as notebook cells, it has no cookies: each address has the token.
    """
    config = uvicorn.Config(
        application(shown, token=token, hosts=Hosts(host), in_frames=in_frames),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)


def serve(shown: Shown, server: uvicorn.Server, listening: socket.socket) -> None:
    """Reads ``shown`` while its ``server`` runs, until that ends or an interrupt.

    Raises: KeyboardInterrupt: it was interrupted. KernelscopeError: a trace cannot be read.
    """
    is_interrupted = False

    def end() -> None:
        server.should_exit = True

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        end()

    shown.start(on_failure=end)
    # Before the server has a handler of its own, an interrupt would end its event loop, or be lost.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, interrupt) if is_main else None
    try:
        server.run(sockets=[listening])
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
        shown.stop()
        listening.close()
    if is_interrupted:
        raise KeyboardInterrupt
    shown.raise_failure()
