"""S3 on loopback by moto, in a process of its own, with what it served."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: What programs that use it find in their environment.
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class ServedRequest:
    """Request that was served."""

    method: str
    path: str
    status: int
    nbytes: int


@dataclass(frozen=True)
class ObjectStore:
    """The server's address, and its log."""

    endpoint: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which libraries find the server."""
        return KEYS | {"AWS_ENDPOINT_URL": self.endpoint}

    def requests(self) -> list[ServedRequest]:
        """Return the requests that were served so far."""
        rows = (line.split(" ") for line in self.log.read_text().splitlines())
        return [ServedRequest(method, path, int(status), int(nbytes)) for method, path, status, nbytes in rows]

    def read_since(self, before: int) -> int:
        """Return the bytes of the bodies that were read since ``before`` requests."""
        return sum(each.nbytes for each in self.requests()[before:] if each.method == "GET")

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse all requests meanwhile, since nobody has rights."""
        self._free_requests(0)
        try:
            yield
        finally:
            self._free_requests(10**9)

    def _free_requests(self, count: int) -> None:
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset-auth", str(count).encode(),
                                         {"Content-Type": "text/plain"}, method="POST")
        with urllib.request.urlopen(request) as answer:
            answer.read()


@contextlib.contextmanager
def serving() -> Iterator[ObjectStore]:
    """Serve with an empty bucket called ``bucket``."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "requests.log")
        log.touch()
        command = [sys.executable, "-W", "ignore", "-m", "tests.system.object_store_server", str(log)]
        with subprocess.Popen(command, env=os.environ | KEYS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True) as process:
            try:
                yield ObjectStore(process.stdout.readline().strip(), log)
            finally:
                process.kill()
