"""A worker process: reads functions with their arguments from stdin, and writes what they give to stdout."""

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from kernelscope.errors import InternalError


def main() -> None:
    """Works until stdin ends: then nobody waits for an answer any more, and it stops where it is."""
    # Ctrl-C goes to all processes of a terminal; the one that leads decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not come between the answers.
    os.dup2(2, 1)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        fn, args, kwargs = requests.get()
        answers.write(_answer(fn, args, kwargs))
        answers.flush()


def _receive(pipe: BinaryIO, requests: "queue.SimpleQueue[Any]") -> None:
    try:
        while True:
            requests.put(pickle.load(pipe))
    except EOFError:
        # Also in the middle of a trace: the lake may belong to another batch by now.
        os._exit(0)


def _answer(fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
    try:
        return pickle.dumps((True, fn(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
        return _failure(error)


def _failure(error: Exception) -> bytes:
    try:
        packed = pickle.dumps((False, error))
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - exceptions of other packages may not survive the journey
        return pickle.dumps((False, InternalError(f"{type(error).__name__}: {error}")))
    return packed


if __name__ == "__main__":
    main()
