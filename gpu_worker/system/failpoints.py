"""Failpoints: named places at which a test makes a worker, or a Spark task that talks to one, fail.

They do nothing unless ``VISPARK_FAILPOINTS`` names a directory. A file there, named after a point, says what happens
to the first process that passes it: ``kill`` (also when empty), ``stop``, ``delay SECONDS`` or ``error``. Its removal
is the sign that it happened, and since the file is renamed first, it happens once.
"""

from __future__ import annotations

import os
import signal
import time

from gpu_worker.protocol.errors import VisparkError

VARIABLE = "VISPARK_FAILPOINTS"

#: Every point, in the order in which a plan passes them.
NAMES = {
    "accepted": "daemon: a connection was accepted, nothing is read",
    "authenticated": "daemon: a greeting was accepted",
    "before-hand-over": "daemon: the session has a process, the connection is not handed on",
    "handed-over": "daemon: the process has taken the connection",
    "welcomed": "process: a client has its Welcome",
    "piece-sent": "task: a piece of a partition was sent, others are not packed",
    "piece-taken": "process: a piece of a partition was handed to its device, others are to come",
    "packed": "task: a plan and its payload are ready, nothing is sent",
    "sent": "task: a plan was sent, nothing is answered",
    "request-received": "process: a request was read, nothing is done",
    "payload-mapped": "process: a plan's payload is mapped",
    "copying-in": "process: a partition is about to be copied to its device",
    "launching": "process: a kernel is about to be launched",
    "wave-done": "process: a wave of a plan's partitions is done, others are to come",
    "wave-ranges": "process: rows of a new partition lie in ranges of their keys, none is sorted or folded",
    "join-part": "process: a part of a join that its device has no room for is made, others are to come",
    "tier-copied": "process: a partition is copied to host memory or a file, and not bound to its name",
    "shuffle-counted": "process: it is known where records go by their keys, none is moved",
    "shuffle-scattered": "process: records lie by their keys on each node, none was sent to another",
    "shuffle-moved": "process: records are moved by their keys, their new partitions are not kept",
    "table-folded": "process: it is folded into a table, nothing of which other nodes have",
    "world-starting": "process: its rank of an MPI world is about to come",
    "halo-packed": "process: cells for other nodes are packed, nothing is sent",
    "halo-sending": "process: messages with cells to other nodes are begun (over UCX), none is waited for",
    "halo-moved": "process: cells of other nodes are there, nothing is unpacked",
    "snapshot-copying": "process: a snapshot's copies are under way",
    "snapshot-taken": "process: a snapshot is copied, the daemon does not have it",
    "snapshot-left": "process: the daemon has a snapshot, nothing is answered",
    "snapshot-copied": "process: another node has a copy of a snapshot, nothing is answered",
    "copy-received": "process: another node's copy of a snapshot came, the daemon does not have it",
    "copy-restoring": "process: another node's part of a snapshot is about to be taken back",
    "publication-copied": "process: a publication is copied, the daemon does not have it",
    "publication-attached": "process: a publication is attached, nothing is answered",
    "fetched": "process: results are in the reply's payload",
    "computed": "process: all work of a plan is complete, nothing is bound to a name",
    "bound": "process: results are bound to their names",
    "before-reply": "process: a request is done, nothing is answered",
    "replied": "process: a reply was sent",
    "before-unpack": "task: a plan's reply is there, its payload is not mapped",
}

_directory = os.environ.get(VARIABLE)


def failpoint(name: str) -> None:
    """Pass the point ``name``.

    Raises
    ------
    VisparkError
        If the point was told to fail with an error.
    """
    if _directory:
        assert name in NAMES, f"no fail-point is called {name!r}"
        _pass(os.path.join(_directory, name))


def _pass(path: str) -> None:
    claimed = f"{path}.taken-{os.getpid()}"
    try:
        os.rename(path, claimed)
    except FileNotFoundError:
        return
    with open(claimed) as file:
        action, *argument = file.read().split() or ["kill"]
    os.unlink(claimed)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "delay":
        time.sleep(float(argument[0]))
    elif action == "error":
        raise VisparkError(f"the fail-point {os.path.basename(path)} was told to fail")
    else:
        raise AssertionError(f"{action!r} is no action of a fail-point")
