"""The server that Spark's Python workers are forked from, for tasks in the driver's JVM: what Spark starts as such.

Each context has one, and each would import for a second what tasks need. So it only asks for a process forked from the
tests' stock (:mod:`tests.system.stock_daemon`), which has imported that once, hands it its environment and streams, and
ends with it. It is a server itself where the stock is of no use: fail-points are read by what is imported.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module

#: The abstract address of the stock.
STOCK = "VISPARK_TEST_STOCK"
#: Variables that what is imported reads; the stock has them as Spark gives them where nobody says otherwise.
AT_IMPORT = {"VISPARK_FAILPOINTS": None, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}


def from_stock(address: str) -> None:
    """Have a server forked that takes over this process's environment and streams, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as stock:
        stock.connect("\0" + address)
        request = json.dumps({"environment": dict(os.environ), "path": sys.path, "arguments": sys.argv,
                              "directory": os.getcwd()}).encode()
        socket.send_fds(stock, [len(request).to_bytes(4, "little")], [0, 1, 2])
        stock.sendall(request)
        server = int.from_bytes(stock.recv(4), "little")
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGTERM))
    with contextlib.suppress(ProcessLookupError):       # It has ended already.
        select.select([os.pidfd_open(server)], [], [])


if __name__ == "__main__":
    if STOCK in os.environ and all(os.environ.get(name) == value for name, value in AT_IMPORT.items()):
        from_stock(os.environ[STOCK])
    else:
        import_module("tests.system.stock_daemon").serve()
