"""Client of a Spark task: its process's connections to workers, and plans that run over them.

A connection is kept for later tasks of the Python worker. A worker that is lost under a plan is found or started again
and the plan repeated: content is bound to its name once, so a repetition changes nothing.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import TypeVar

from pyspark import TaskContext

from gpu_worker.client.connection import Client, connect, failpoint
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Ran, Run
from gpu_worker.protocol.payload import Data, Payload, results
from gpu_worker.protocol.wire import close_all, error_of
from vispark.data.records import Packed, RecordLayout
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Fenced, OutOfMemory, VisparkError, WorkerError, WorkerLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.executor.assigned_gpus import executor_process
from vispark.runtime.executor.chunked_upload import PIECES_FROM, Pieces, chunk_space
from vispark.runtime.identity import Credentials

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_clients: dict[tuple[int, str, str, tuple[str, ...]], Client] = {}


def local_client(credentials: Credentials, runtime_dir: str | None = None) -> Client:
    """Return this process's connection to a worker, of its own node unless a directory is given; starts the worker if
    none runs.

    Raises
    ------
    WorkerUnavailable
        If there is none and none can be started.
    """
    # Where only a task knows its GPUs, another one's connection does not stand for them.
    key = os.getpid(), credentials.session, runtime_dir or "", credentials.gpus.own_addresses()
    if key not in _clients:
        _settle()
        hello = credentials.hello("executor", executor_process(), credentials.reached_at())
        _clients[key] = connect(hello, runtime_dir=runtime_dir, timeout=credentials.options.startTimeout)
    return _clients[key]


@cache
def _settle() -> None:
    """Exclude the modules imported so far from later garbage collections: PySpark runs a full one after each task.

    Garbage in cycles goes first, as it would stay otherwise. `docs/guide/performance.md` tells users of it.
    """
    if TaskContext.get():
        gc.collect()
        gc.freeze()


def forget(client: Client) -> None:
    """Close a connection and drop it from the process's cache."""
    for key, cached in list(_clients.items()):
        if cached is client:
            del _clients[key]
    client.close()


def blame(client: Client, invocation: Invocation, number: int) -> None:
    """Raise the error of a kernel of the request ``number`` that ended the worker's process, if one did.

    Where the worker could not tell which of several requests it was, one with such a kernel on such a partition.
    """
    try:
        failure = client.exit_status().failure
    except WorkerError:
        return      # the daemon is gone too, and with it what it knew
    labels, ours = invocation.prepared.labels, {None, *invocation.partitions}
    if failure is None or failure.number not in (0, number):
        return
    if failure.number or (failure.partition in ours and any(label in failure.operation for label in labels)):
        raise error_of(failure)


def run(credentials: Credentials, invocation: Invocation, packed: Packed | None = None,
        runtime_dir: str | None = None) -> tuple[Client, Ran, Data]:
    """Run a plan in the worker of this node, again if the worker is lost.

    Not again where other nodes run it too: the process that comes next is in no world with them.

    Returns
    -------
    client, reply, data
        The connection that answered, its answer, and what was fetched.

    Raises
    ------
    PartitionMissing
        If the plan starts from content that the worker does not hold.
    VisparkError
        If the plan fails.
    """
    def ask(client: Client, pieces: Packed | None = None) -> tuple[Client, Ran, Data]:
        offset = pieces.key_bytes if pieces else packed.nbytes if packed else 0
        request, size = invocation.request(client.next_number(), client.epoch, credentials.options.deadline,
                                           known=False, offset=offset, pieces=pieces is not None)
        if pieces:
            payload: Payload | None = _sent_in_pieces(client, invocation, pieces, request, offset, size)
            request = replace(request, plan=b"")        # the first piece brought it
        else:
            payload = _payload(client, invocation, packed, offset, size)
        try:
            failpoint("packed")
            client.send(request, [payload.descriptor] if payload else [])
            failpoint("sent")
            try:
                reply, descriptors = client.receive(request.number)
            except (WorkerLost, Fenced):
                forget(client)
                # Not where it could not be sent: it has done nothing yet.
                blame(client, invocation, request.number)
                raise
            except VisparkError:
                if pieces:
                    forget(client)      # if a piece was refused, so are those behind it, which says it again
                raise
            if payload and not reply.retained:
                client.recycle(payload)
                payload = None
        finally:
            if payload:
                payload.close()
        failpoint("before-unpack")
        return client, reply, results(reply.data, descriptors)

    again = invocation.world is None
    if packed is not None and invocation.prepared.to_device and packed.block_bytes >= PIECES_FROM:
        # Without room a worker gives up what it can and begins anew, which takes a partition that is there as a whole.
        with suppress(OutOfMemory):
            return answered(credentials, runtime_dir, partial(ask, pieces=packed), again=again)
    return answered(credentials, runtime_dir, ask, again=again)


def answered(credentials: Credentials, runtime_dir: str | None, ask: Callable[[Client], _Answer], *,
              again: bool = True) -> _Answer:
    """Call ``ask(client)``; if the worker is lost, reconnect and call it again, unless ``again`` is false."""
    attempt = 0
    while True:
        client = local_client(credentials, runtime_dir)
        try:
            return ask(client)
        except (WorkerLost, Fenced) as error:
            # Every task tells of it; the driver says so once.
            log.info("worker lost: %s", error)
            forget(client)
            attempt += 1
            if not again or attempt > credentials.options.attempts:
                raise


def _payload(client: Client, invocation: Invocation, packed: Packed | None, offset: int, size: int) -> Payload | None:
    """Return a payload with the records, and with ``size`` bytes of values from ``offset`` on."""
    if not offset + size and not (packed and packed.signatures):     # blocks may be of no bytes
        return None
    retained = invocation.prepared.retains
    payload = Payload.create(offset + size) if retained else client.payload(offset + size)
    if packed:
        packed.write(payload, 0)
    invocation.values.write(payload, offset)
    return payload


def _sent_in_pieces(client: Client, invocation: Invocation, packed: Packed, request: Run, offset: int,
                    size: int) -> Payload:
    """Send the blocks to the worker ahead of the plan, in pieces; return the payload with keys and values."""
    start, whole = chunk_space(offset + size)
    with ExitStack() as undo:
        # Then the worker forgets what has come.
        undo.callback(forget, client)
        payload = client.payload(whole)
        undo.callback(payload.close)
        if not payload.used:
            payload.populate()
        packed.write_keys(payload, 0)
        invocation.values.write(payload, offset)
        pieces = Pieces(client, request, payload, start)
        packed.write_blocks(pieces, 0)
        pieces.finish(packed.block_bytes)
        undo.pop_all()
    return payload


def held(client: Client, number: int, partitions: Iterable[int] = ()) -> dict[int, PartitionSchema]:
    """Ask a worker for the content that it holds of a VRDD; return the schemas by partition."""
    reply, descriptors = client.request(messages.Describe(client.next_number(), number, tuple(partitions)))
    close_all(descriptors)
    return contents(reply)


def contents(reply: messages.DescribedVrdd) -> dict[int, PartitionSchema]:
    """Return the content of the partitions that a worker described."""
    return {each.partition: PartitionSchema(each.count, each.keys, _layout(each.layout),
                                            tuple([reply.signatures[block] for block in each.blocks]), each.positions,
                                            each.place)
            for each in reply.held}


#: Partitions share a few layouts.
_layout = lru_cache(maxsize=1024)(RecordLayout.decode)
