"""The contract of transports that have connections, on each: those of the table, and one of the docs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpu_worker.client.connection import Client, administer, connect, finish, open_lease
from gpu_worker.client.transport import Endpoint, transport_to
from gpu_worker.protocol import transport_kinds
from gpu_worker.protocol.errors import OptionError, PartitionMissing, Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import FetchStep, Field, KeepStep, LoadStep, PutStep, Report, Status, ToDeviceStep
from gpu_worker.protocol.payload import MARK_BYTES, Payload, results
from gpu_worker.system.paths import RuntimeDirectory
from tests.system.test_worker_descriptors import NBYTES, request
from tests.system.topology import Topology
from tests.system.tunnel import TUNNEL, close_tunnels
from tests.system.worker_tools import SECONDS, Runtime, ask, eventually, hello, runtime
from vispark.options import Options
from vispark.runtime.driver.session import Session

__all__ = ["runtime"]

HOST = "127.0.0.1"

#: Leads to the session's process by a transport.
OpensClient = Callable[..., Client]


@pytest.fixture(params=["unix", "tcp", "tunnel"])
def kind(request: pytest.FixtureRequest) -> Iterator[transport_kinds.TransportKind]:
    transport_kinds.register(TUNNEL)
    yield transport_kinds.kind_of(request.param)
    close_tunnels()
    transport_kinds.unregister(TUNNEL.name)


@pytest.fixture
def executor(runtime: Runtime) -> Iterator[Client]:
    with runtime.client(reach=HOST, device="host") as client:
        yield client


@pytest.fixture
def way(executor: Client, kind: transport_kinds.TransportKind) -> OpensClient:
    def way(**changes) -> Client:
        return connect(hello(role="driver", client_pid=0, device="host", **changes), runtime_dir=executor.runtime_dir,
                       reach=executor.reach if kind.needs_address else None, timeout=SECONDS, transport=kind.name)
    return way


def test_it_leads_to_the_sessions_process_and_shares_memory_as_it_says(way: OpensClient, executor: Client, kind):
    with way() as client:
        assert (client.pid, client.epoch, client.worker) == (executor.pid, executor.epoch, executor.worker)
        assert client.shares_memory == kind.shares_memory
        assert ask(client).number


def test_requests_are_answered_in_their_order(way: OpensClient):
    with way() as client:
        numbers = [client.next_number() for _ in range(20)]
        for number in numbers:
            client.send(Report(number))
        assert [client.receive(number)[0].number for number in numbers] == numbers


def test_large_data_comes_and_goes(way: OpensClient):
    wanted = np.random.default_rng(1).random(NBYTES // 8)
    with way() as client:
        with Payload.create(NBYTES + MARK_BYTES) as memory:
            memory.put(0, wanted)
            client.request(request(client, PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")), [memory.descriptor])
        reply, descriptors = client.request(request(client, LoadStep(0), FetchStep(-1, "")))
        values = results(reply.data, descriptors).field(Field("", "<f8", wanted.shape), reply.outputs[0].offset)
        assert np.array_equal(values, wanted)


def test_an_error_of_the_worker_has_its_type(way: OpensClient):
    with way() as client:
        with pytest.raises(PartitionMissing):
            client.request(request(client, LoadStep(0), FetchStep(-1, ""), vrdds=(99,)))
        assert ask(client)


def test_another_secret_is_refused(way: OpensClient):
    with pytest.raises(Unauthorized, match="secret"):
        way(secret=b"t" * 32)


def test_a_process_that_dies_is_told_with_its_fate(way: OpensClient):
    with way() as client:
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            ask(client)
        death = client.exit_status()
        assert (death.alive, death.signal) == (False, signal.SIGKILL)
        with way() as again:
            assert again.epoch > client.epoch


def test_a_lease_is_held_and_a_session_ended(way: OpensClient, executor: Client, kind):
    where = {"runtime_dir": executor.runtime_dir, "reach": executor.reach if kind.needs_address else None,
             "transport": kind.name}
    with open_lease(hello(role="lease", client_pid=0, device="host"), **where):
        session, = administer(Status(), runtime_dir=executor.runtime_dir).sessions
        assert session.lease == "driver"
    finish(hello(role="finish", client_pid=0, device="host"), **where)
    assert eventually(lambda: not administer(Status(), runtime_dir=executor.runtime_dir).sessions)


def test_nobody_there_is_said_in_time(kind, executor: Client, runtime: Runtime):
    reach = executor.reach
    runtime.run("stop")
    with pytest.raises(WorkerUnavailable):
        connect(hello(role="driver", client_pid=0), runtime_dir=executor.runtime_dir, start=False, timeout=2.0,
                reach=reach if kind.needs_address else None, transport=kind.name)


# -- the table --------------------------------------------------------------------------------------------------------

def test_a_transport_is_one_entry(kind):
    assert Options.read([("spark.vispark.transport", "tunnel")]).transport == "tunnel"
    transport_kinds.unregister(TUNNEL.name)
    try:
        with pytest.raises(OptionError, match="one of auto, unix, tcp, relay"):
            Options.read([("spark.vispark.transport", "tunnel")])
        with pytest.raises(OptionError, match="the known ones are auto, unix, tcp, relay"):
            transport_kinds.choose("tunnel", is_here=True, has_address=True)
    finally:
        transport_kinds.register(TUNNEL)


def test_it_needs_the_address_that_it_says(kind, runtime: Runtime):
    transport = transport_to(Endpoint(RuntimeDirectory(runtime.path), None, False, 1.0), kind.name)
    with pytest.raises(WorkerUnavailable, match="has no address" if kind.needs_address else "no GPU worker runs"):
        transport.open(hello())


@pytest.mark.parametrize(("is_here", "has_address", "name"), [
    (True, True, "unix"), (True, False, "unix"), (False, True, "tcp"), (False, False, "relay")])
def test_auto_takes_the_first_that_works(is_here: bool, has_address: bool, name: str):
    assert transport_kinds.choose("auto", is_here=is_here, has_address=has_address).name == name


@pytest.mark.parametrize("name", ["unix", "tcp", "relay", "tunnel"])
def test_a_session_gives_the_same_on_each(local: Topology, name: str):
    table = transport_kinds.kind_of("tcp")
    if name == "tunnel":
        # Tasks, which are processes of their own, know the table as it is: the driver alone takes another way.
        transport_kinds.register(replace(TUNNEL, name="tcp"))
    try:
        wanted = "tcp" if name == "tunnel" else name
        with local.context({"spark.vispark.device": "host", "spark.vispark.transport": wanted}) as sc:
            numbers = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
            assert numbers.collect() == [1.0, 2.0, 3.0]
            assert numbers.vmap(lambda x: x * 2).collect() == [2.0, 4.0, 6.0]
            worker, = Session.of(sc).workers.known()
            assert f"1 {worker.kind.label}" in numbers.explanation()
            assert worker.direct == (name != "relay")
    finally:
        transport_kinds.register(table)
        carried = close_tunnels()
    assert (carried > 0) == (name == "tunnel")
