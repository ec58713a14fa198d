"""HTTP server before another one on loopback, which passes requests on and answers some of them as a test says."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Faults of an answer, in what they are: the request is refused; or it is carried out, and then the answer is a status
#: of 500, none before the client goes, the first half as a whole answer, or a document without its parts.
REFUSED, FAILED, SILENT, HALF, EMPTY = "refused", "failed", "silent", "half", "empty"

_REFUSAL = (b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not you</Message></Error>"
            b"</ErrorResponse>")


class FaultyServer:
    """Server of AWS's operations, some of which have faults.

    Attributes
    ----------
    faults : dict of str to list of str
        Of each operation, the faults of its next answers.
    """

    def __init__(self, behind: str):
        self.behind = urlsplit(behind).netloc
        self.faults: dict[str, list[str]] = {}
        self.ended = threading.Event()

    def next_fault(self, operation: str) -> str:
        """Return the fault of an operation's next answer, or ""."""
        faults = self.faults.get(operation, [])
        return faults.pop(0) if faults else ""


@contextmanager
def faulty_server(behind: str) -> Iterator[tuple[str, FaultyServer]]:
    """Yield the address of a server before another one, and its faults."""
    state = FaultyServer(behind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(state: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class FaultyHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = _operation(self.headers, body)
            fault = state.next_fault(operation)
            if fault == REFUSED:
                self._answer(403, "text/xml", _REFUSAL)
                return
            status, kind, answer = self._passed_on(body)
            if fault == SILENT:
                state.ended.wait(60)
            elif fault == FAILED:
                self._answer(500, kind, b"")
            elif fault == HALF:
                self._answer(status, kind, answer[:len(answer) // 2])
            elif fault == EMPTY:
                self._answer(status, kind, b"{}" if answer.startswith(b"{") else
                             f"<{operation}Response><{operation}Result/></{operation}Response>".encode())
            else:
                self._answer(status, kind, answer)

        def _passed_on(self, body: bytes) -> tuple[int, str, bytes]:
            connection = http.client.HTTPConnection(state.behind, timeout=60)
            try:
                connection.request("POST", self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return answer.status, answer.headers["Content-Type"], answer.read()
            finally:
                connection.close()

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return FaultyHandler


def _operation(headers: Any, body: bytes) -> str:
    """Return the operation of a request, which JSON has in a header and forms have in the body."""
    target = str(headers.get("X-Amz-Target", "")).rpartition(".")[2]
    return target or parse_qs(body.decode(errors="replace")).get("Action", [""])[0]
