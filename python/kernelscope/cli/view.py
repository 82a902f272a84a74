"""``kernelscope view``: shows a trace, or a choice of many, in the browser."""

import argparse
import os
import sys
import threading
import webbrowser
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show
from kernelscope.cli.inputs import STDIN, STDIN_NAME
from kernelscope.cli.reading import check_of_lake, read_file
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.trace import Trace
    from kernelscope.view.choice import Choice, Shown
    from kernelscope.view.session import Progress, Session

_LARGEST_PORT = 65_535


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "view",
        help="explore a trace, a folder or a lake in the browser, or compare two traces",
        description=(
            "Serves a page about a trace on this machine until Ctrl-C, and opens it in the browser. For "
            "a folder or a lake it lists the traces or ranks; click one to open it. For two traces it "
            "shows both timelines step by step, and what changed from the first to the second. The first "
            "line of the output is the address. It includes a token, and requests without it are refused."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a later trace to compare with")
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="port to listen on (default: any free port)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help=(
            "address to listen on. With an address other than 127.0.0.1, other machines that have the "
            "token can connect, and the connection is not encrypted (default: 127.0.0.1)"
        ),
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address without opening a browser"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves the page until it is interrupted."""
    from kernelscope.view.security import is_loopback, new_token
    from kernelscope.view.server import address, listen, serve, server_of
    from kernelscope.view.showing import has_screen

    shown = _shown(options)
    token = new_token()
    server = server_of(shown, host=options.host, token=token)
    listening = listen(options.host, options.port)
    opened = address(listening, options.host, token)
    show(opened)
    sys.stdout.flush()
    if not is_loopback(options.host):
        say(
            f"listening on {options.host}: other machines can connect with the token in the address "
            "above, and the connection is not encrypted; ssh -L is safer"
        )
    if not options.no_browser and has_screen():
        webbrowser.open(opened)
    serve(shown, server, listening)
    return 0


def _shown(options: argparse.Namespace) -> "Shown":
    """What is to be shown: nothing of it is read yet."""
    from kernelscope.view.session import Pair

    if options.other is None and os.path.isdir(options.trace):
        chosen = _choice(options, options.trace)
        if chosen is not None:
            return chosen
    if options.other is None:
        return _session(options, options.trace, nullcontext())
    if options.trace == options.other == STDIN:
        raise InvalidArgumentError("standard input contains one trace: pass the other as a file")
    one_bar = threading.Lock()
    return Pair(*(_session(options, path, one_bar) for path in (options.trace, options.other)))


def _choice(options: argparse.Namespace, path: str) -> "Choice | None":
    """The traces of a folder or the ranks of a lake; None for a folder that is one trace."""
    from kernelscope.batch.lake import scan
    from kernelscope.batch.rank_folders import is_lake
    from kernelscope.exports import is_export
    from kernelscope.view.catalogue import Folder
    from kernelscope.view.choice import Choice
    from kernelscope.view.lake_ranks import LakeRanks

    if is_export(path):
        return None
    if is_lake(Path(path)):
        check_of_lake(options)
        return Choice(LakeRanks(scan(path)))
    return Choice(Folder(path, lambda file, watch: _read(options, file, watch)))


def _read(options: argparse.Namespace, path: str, watch: "Progress") -> "Trace":
    return read_file(
        options,
        path,
        watch=watch,
        threads=options.threads,
        rank=options.rank,
        step_range=options.step_range,
        capture=options.capture,
    )


def _session(options: argparse.Namespace, path: str, turn: "AbstractContextManager[object]") -> "Session":
    """The session of a trace, which is read in its ``turn``: a terminal shows one bar at a time."""
    from kernelscope.remote import is_url
    from kernelscope.view.session import Session

    is_file = path != STDIN and not is_url(path)
    if is_file:
        # A name that is wrong is told here, before there is a page to tell it.
        os.stat(path)
    name = Path(path).name if is_file else STDIN_NAME if path == STDIN else path

    def read(watch: "Progress") -> "Trace":
        with turn:
            return _read(options, path, watch)

    return Session(name, read, path=path if is_file else None)


def _port(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= value <= _LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port: pass one from 0 to {_LARGEST_PORT:,}")
    return value
