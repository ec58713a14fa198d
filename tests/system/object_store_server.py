"""Server of S3 on loopback by moto, which writes down what it serves; :mod:`tests.system.object_store` runs it.

Each request is a line of the log: method, path with its query, status, and bytes of the answer's body::

    python -m tests.system.object_store_server LOG
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def counted(application: Any, log: Path) -> Any:
    """Return a WSGI application that writes its requests down."""
    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        statuses: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
            statuses.append(status)
            return start_response(status, headers, error)

        # Google's clients send a token or nothing, where moto looks for a signature.
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS"):
            environ["HTTP_AUTHORIZATION"] = "AWS key:signature"
        body = b"".join(application(environ, start))
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        path = (environ["PATH_INFO"] + query).replace(" ", "_")
        with log.open("a") as file:
            file.write(f"{environ['REQUEST_METHOD']} {path} {statuses[-1][:3]} {len(body)}\n")
        return [body]

    return answer


def main(log: Path) -> None:
    """Serve until this process is killed, and print the address."""
    server = make_server("127.0.0.1", 0, counted(DomainDispatcherApplication(create_backend_app), log), threaded=True)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
    print(endpoint, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    # Nobody needs rights, until a test resets this count.
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(10**9)
    main(Path(sys.argv[1]))
