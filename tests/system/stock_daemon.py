"""The stock: a process that has imported what tasks of tests need, and of which servers of Python workers are forked.

Run as a program it is one of a driver's, and serves :mod:`tests.system.pyspark_daemon` on a socket that it inherits,
until its standard input is closed.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from zipimport import zipimporter

import pyspark.sql
import pyspark.worker
import pytest
from pyspark import daemon

import vispark
from vispark.api.rdds import received_rdd
from vispark.runtime.executor import tasks
from vispark.translate import fusion

#: What tasks of tests need. Without it each worker, of which a file's tests use up ten or more, imports for 0.3 s.
IMPORTED = pytest, pyspark.sql, pyspark.worker, vispark, received_rdd, tasks, fusion
#: What tasks of a file's tests need beside it: modules, with blanks between.
FURTHER = "VISPARK_TEST_IMPORTS"


def forget_archives() -> None:
    """Take Spark's archives off the path: PySpark 3.5 lets importers read what is in theirs anew in each task."""
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def serve() -> None:
    """Be a server of Python workers."""
    forget_archives()
    for name in os.environ.get(FURTHER, "").split():
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


def fork(listener: socket.socket) -> None:
    """Fork a server that takes over what the process is that asks for it, and tell that its number."""
    connection, _ = listener.accept()
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    left, parts = int.from_bytes(size, "little"), []
    while left:
        parts.append(connection.recv(left))
        left -= len(parts[-1])
    if server := os.fork():
        connection.sendall(server.to_bytes(4, "little"))
        connection.close()
        for stream in streams:
            os.close(stream)
        return
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    connection.close()
    listener.close()
    request = json.loads(b"".join(parts))
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.path[:], sys.argv[:] = request["path"], request["arguments"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    serve()


def main(listener: socket.socket) -> None:
    """Fork whenever one asks for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)       # No server that ended is kept.
    forget_archives()
    gc.collect()
    gc.freeze()
    while listener in select.select([0, listener], [], [])[0]:
        fork(listener)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[2])))
