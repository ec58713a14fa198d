"""Runs the notebooks of examples/notebooks in a kernel of a Jupyter Enterprise Gateway, and compares what they show.

``python docs/gateway.py http://127.0.0.1:8888 [NOTEBOOK...]``, by the Python of an environment of the gateway's own,
for it pins anyio 3 and takes ipykernel 6.29; docs/examples/notebooks.md has the commands. A kernel is started by the
gateway's REST interface, and cells run over its websocket.
"""

from __future__ import annotations

import difflib
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import nbformat
import requests
import websocket

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs.notebooks import NOTEBOOKS, ROOT, code_cells, texts

#: What the gateway hands to the kernel's process; it refuses a kernel that is nobody's.
_VARIABLES = {"KERNEL_USERNAME": "notebooks", "KERNEL_WORKING_DIR": str(ROOT)}
_SECONDS = 300


def main() -> None:
    """Run all cells in one kernel, and end with an error where they show something else than is kept."""
    url, *names = sys.argv[1:]
    notebooks = [path for path in NOTEBOOKS if path.name in names or not names]
    wait_for(url)
    started = requests.post(f"{url}/api/kernels", json={"name": "python3", "env": _VARIABLES}, timeout=_SECONDS)
    started.raise_for_status()
    kernel = started.json()["id"]
    try:
        socket = websocket.create_connection(f"ws{url.removeprefix('http')}/api/kernels/{kernel}/channels",
                                             timeout=_SECONDS)
        differences = [line for path in notebooks for line in compared(path, socket)]
        socket.close()
    finally:
        requests.delete(f"{url}/api/kernels/{kernel}", timeout=_SECONDS)
    if differences:
        sys.exit("\n".join(differences))
    print(f"{len(notebooks)} notebooks through {url}: as they are kept")


def wait_for(url: str) -> None:
    """Wait until the gateway answers."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            requests.get(f"{url}/api", timeout=_SECONDS).raise_for_status()
        except requests.ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def compared(path: Path, socket: websocket.WebSocket) -> list[str]:
    """Run a notebook, and return the differences of its texts."""
    kept = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(kept)
    for cell in code_cells(run):
        cell.outputs = outputs(socket, cell.source)
    return list(difflib.unified_diff(list(texts(kept)), list(texts(run)), f"{path.name} as kept", "by the gateway",
                                     lineterm=""))


def outputs(socket: websocket.WebSocket, source: str) -> list[Any]:
    """Run a cell, and return its outputs; those that are written over count as their last text."""
    number = uuid.uuid4().hex
    content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
               "stop_on_error": True}
    header = {"msg_id": number, "msg_type": "execute_request", "username": "", "session": number, "version": "5.3"}
    socket.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content,
                            "channel": "shell", "buffers": []}))
    outputs: list[Any] = []
    shown: dict[str, Any] = {}
    while True:
        message = json.loads(socket.recv())
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != number:
            continue
        if kind == "status" and content["execution_state"] == "idle":
            return outputs
        if kind == "error":
            sys.exit("\n".join(content["traceback"]))
        display = content.get("transient", {}).get("display_id")
        if kind == "update_display_data" and display in shown:
            shown[display].data = content["data"]
        elif kind in ("stream", "display_data", "execute_result"):
            outputs.append(nbformat.v4.output_from_msg(message | {"header": message["header"] | {"msg_type": kind}}))
            if display:
                shown[display] = outputs[-1]


if __name__ == "__main__":
    main()
