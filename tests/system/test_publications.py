"""Publications between sessions of one daemon, on the ``host`` device and without Spark."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import administer
from gpu_worker.protocol.errors import (
    DeviceUnavailable,
    PlanError,
    PublicationExists,
    PublicationLost,
    Unauthorized,
    WorkerLost,
)
from gpu_worker.protocol.messages import (
    Attach,
    Describe,
    FetchStep,
    Field,
    Input,
    KeepStep,
    ListPublications,
    LoadStep,
    Plan,
    Publish,
    PutStep,
    Release,
    Run,
    Signature,
    ToDeviceStep,
    Unpublish,
    Variant,
)
from gpu_worker.protocol.payload import Payload, results
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.publications import PublicationDetails
from gpu_worker.protocol.wire import close_all
from tests.leaks import is_alive
from tests.system.worker_tools import Runtime, eventually, runtime

__all__ = ["runtime"]

NUMBERS = np.arange(5000.0)
SIGNATURE = Signature((Field("", "<f8", NUMBERS.shape),))
DETAILS = PublicationDetails("points", "k1", "an application", "x", "device", 1, 1.0)
ON_DEVICE = PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")
DEVICE = os.environ.get("VISPARK_TEST_DEVICE", "host")
OWNER = {"session": "owner", "device": DEVICE, "lease": 1.0}
READER = {"session": "reader", "device": DEVICE, "lease": 1.0, "secret": b"r" * 32}


def ran(client, steps, vrdds, keys=0, payload=None, signature=SIGNATURE):
    keeps = sum(isinstance(step, KeepStep) for step in steps)
    variant = Variant(signature, (), (b"",) * keeps, (-1,) * keeps)
    plan = Plan(tuple(steps), (), (variant,), (Input(0, len(NUMBERS), keys, 0, b"", (0,)),), ())
    key, encoded = sealed(plan)
    return client.request(Run(client.next_number(), client.epoch, 60.0, key, encoded, vrdds, ()),
                          [payload.descriptor] if payload else [])


def put(client, vrdd=1, keys=b"", steps=ON_DEVICE):
    start = -(-len(keys) // 256) * 256
    with Payload.create(start + NUMBERS.nbytes) as payload:
        payload.put(0, np.frombuffer(keys, np.uint8)) if keys else None
        payload.put(start, NUMBERS)
        ran(client, steps, (vrdd,), len(keys), payload)


def publish(client, details=DETAILS, *, replace=False, vrdd=1):
    client.request(Publish(client.next_number(), vrdd, details, replace))


def attach(client, vrdd=7, name="points", key="", digest=b""):
    reply, _ = client.request(Attach(client.next_number(), name, key, digest, vrdd, "theirs"))
    return reply


def fetched(client, vrdd=7):
    reply, descriptors = ran(client, (LoadStep(0), ToDeviceStep(), FetchStep(-1, "")), (vrdd,))
    values = results(reply.data, descriptors).field(SIGNATURE.fields[0], reply.outputs[0].offset).copy()
    close_all(descriptors[1:])
    return values


def listed():
    return administer(ListPublications()).publications


def test_a_reader_maps_what_an_owner_published_and_goes_on_when_that_is_killed(runtime: Runtime):
    with runtime.lease(**OWNER) as lease, runtime.client(**OWNER, client_pid=0) as owner:
        put(owner)
        publish(owner)
        assert np.array_equal(fetched(owner, 1), NUMBERS)
        with runtime.client(**READER) as reader:
            reply = attach(reader)
            assert reply.details == DETAILS and [each.partition for each in reply.content.held] == [0]
            assert attach(reader).content.held == reply.content.held
            assert np.array_equal(fetched(reader), NUMBERS)
            assert owner.pid != reader.pid
            os.kill(owner.pid, signal.SIGKILL)
            lease.close()
            assert eventually(lambda: [each.session for each in runtime.status().sessions] == ["reader"])
            assert np.array_equal(fetched(reader), NUMBERS)
            assert attach(reader, 8).details.key == "k1" and np.array_equal(fetched(reader, 8), NUMBERS)
            assert [each.expires for each in listed()] == [-1.0]
            reader.request(Release(reader.next_number(), (7, 8)))
            assert eventually(lambda: not listed(), 6.0)
            with pytest.raises(PublicationLost, match="'points' is not there any more: its lease of 1 s"):
                attach(reader, 9)


def test_a_reader_changes_and_releases_its_own_view_only(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner)
        publish(owner)
        attach(reader)
        with pytest.raises(PlanError, match="VRDD 7 is the publication 'points', which is read only"):
            put(reader, 7)
        with pytest.raises(PlanError, match="read only"):
            ran(reader, (LoadStep(0), ToDeviceStep(), KeepStep(1, "y", "device")), (7, 7))
        reader.request(Release(reader.next_number(), (1, 7)))       # 1 is the owner's number, and nothing here
        assert np.array_equal(fetched(owner, 1), NUMBERS)
        held, _ = owner.request(Describe(owner.next_number(), 1, ()))
        assert len(held.held) == 1
        assert np.array_equal(fetched(reader, attach(reader, 8) and 8), NUMBERS)
    with pytest.raises(Unauthorized, match="owner has another secret"), \
            runtime.client(**READER | {"session": "owner"}):
        pass


def test_names_and_secrets(runtime: Runtime):
    secret = PublicationDetails("points", "k1", "an application", "x", "device", 1, 1.0, b"s" * 32)
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        with pytest.raises(PublicationLost, match="no publication 'points'"):
            attach(reader)
        put(owner)
        publish(owner, secret)
        for digest in (b"", b"t" * 32):
            with pytest.raises(Unauthorized, match="its secret only"):
                attach(reader, digest=digest)
        attach(reader, digest=b"s" * 32)
        put(reader, 3)
        other = PublicationDetails("points", "k2", "another", "y", "device", 1, 1.0)
        with pytest.raises(PublicationExists, match="of the application 'an application'"):
            publish(reader, other, vrdd=3)
        publish(reader, other, vrdd=3, replace=True)
        assert [each.key for each in listed()] == ["k2"]
        assert np.array_equal(fetched(reader), NUMBERS)
        assert attach(owner, 9).details.key == "k2"
        administer(Unpublish("points"))
        assert not listed() and np.array_equal(fetched(owner, 9), NUMBERS)


def test_pickled_keys_are_refused_and_others_are_read(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner, 1, b"t" * 32 + b"p" + b"pickled")
        with pytest.raises(PlanError, match=r"its keys are pickled, .*: publish .values\(\)"):
            publish(owner)
        assert not listed()
        put(owner, 2, b"t" * 32 + b"mplain")
        publish(owner, vrdd=2)
        assert attach(reader).content.held[0].keys == 32 + len(b"mplain")


def test_what_lies_in_host_memory_is_published_too(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner, steps=(PutStep(), KeepStep(0, "x", "host")))
        publish(owner)
        attach(reader)
        assert np.array_equal(fetched(reader), NUMBERS)


def test_a_device_without_memory_for_others_says_so(runtime: Runtime):
    with runtime.client("owner", device="null") as owner:
        put(owner)
        with pytest.raises(DeviceUnavailable, match="null:0 has no memory that other processes can map"):
            publish(owner)


@pytest.mark.skipif(DEVICE != "host", reason="a GPU's mappings are not in /proc; tests/chaos writes to them")
def test_the_memory_cannot_be_written_by_anybody(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner)
        publish(owner)
        attach(reader)
        maps = {pid: [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "publication" in line]
                for pid in (owner.pid, reader.pid)}
        assert len(maps[reader.pid]) >= 1 and len(maps[owner.pid]) >= 1
        assert all(" r--s " in line for lines in maps.values() for line in lines), maps


def test_a_thousand_times_attached_and_released_leaves_nothing(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner)
        publish(owner)

        def figures() -> tuple[int, int, int]:
            report = runtime.status().sessions
            used = sum(memory.used for session in report for memory in session.report.memory)
            descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (reader.pid, runtime.daemon())]
            return used, len(listed()), *descriptors

        for vrdd in (10, 11):
            attach(reader, vrdd)
            reader.request(Release(reader.next_number(), (vrdd,)))
        assert eventually(lambda: not listed()[0].readers)
        before = figures()
        for vrdd in range(20, 1020):
            attach(reader, vrdd)
            reader.request(Release(reader.next_number(), (vrdd,)))
        assert eventually(lambda: not listed()[0].readers)
        assert eventually(lambda: figures() == before), (before, figures())
        assert np.array_equal(fetched(owner, 1), NUMBERS)


def test_a_daemon_that_is_killed_gets_publications_back(runtime: Runtime):
    with runtime.client(**OWNER) as owner, runtime.client(**READER) as reader:
        put(owner)
        publish(owner)
        attach(reader)
        os.kill(runtime.daemon(), signal.SIGKILL)
        runtime.start()
        assert eventually(lambda: [(each.key, each.readers) for each in listed()] == [("k1", 1)])
        assert np.array_equal(fetched(reader, attach(reader, 8) and 8), NUMBERS)


def test_a_daemon_that_is_killed_gets_publications_back_from_a_process_whose_application_is_gone(runtime: Runtime):
    # The process stays for its session's lease; the publication's own lease goes on behind it.
    staying = OWNER | {"lease": 60.0}
    with runtime.lease(**staying) as lease, runtime.client(**staying, client_pid=0) as owner:
        put(owner)
        publish(owner, replace(DETAILS, lease=600.0))
        process = owner.pid
        lease.close()
    assert eventually(lambda: [each.expires > 0 for each in listed()] == [True])
    os.kill(runtime.daemon(), signal.SIGKILL)
    runtime.start()
    assert eventually(lambda: [each.key for each in listed()] == ["k1"]) and is_alive(process)
    with runtime.client(**READER) as reader:
        assert np.array_equal(fetched(reader, attach(reader) and 7), NUMBERS)


def test_a_daemon_that_is_killed_when_no_process_is_left_takes_the_publication_along(runtime: Runtime):
    lasting = replace(DETAILS, lease=600.0)
    with runtime.lease(**OWNER) as lease, runtime.client(**OWNER, client_pid=0) as owner:
        put(owner)
        publish(owner, lasting)
        process = owner.pid
        lease.close()
    assert eventually(lambda: not is_alive(process)) and [each.expires > 0 for each in listed()] == [True]
    os.kill(runtime.daemon(), signal.SIGKILL)
    runtime.start()
    with runtime.client(**READER) as reader:
        with pytest.raises(PublicationLost, match="no publication 'points'"):
            attach(reader)
        put(reader, 3)
        publish(reader, replace(lasting, key="k2"), vrdd=3)
        assert attach(reader, 4).details.key == "k2"


@pytest.mark.parametrize("point", ["publication-copied", "publication-attached", "before-reply"])
def test_a_process_that_is_killed_on_the_way_leaves_no_half_of_it(runtime: Runtime, point: str):
    with runtime.client(**OWNER) as owner:
        put(owner)
        if point != "publication-copied":
            publish(owner)
        with runtime.client(**READER) as reader:
            runtime.fail_at(point)
            with pytest.raises(WorkerLost):
                publish(owner) if point == "publication-copied" else attach(reader)
        if point == "publication-copied":
            assert not listed()
            return
        with runtime.client(**READER) as again:
            attach(again)
            assert np.array_equal(fetched(again), NUMBERS)
        assert np.array_equal(fetched(owner, 1), NUMBERS)


def test_the_command_line_lists_and_takes_back(runtime: Runtime):
    with runtime.client(**OWNER) as owner:
        put(owner)
        publish(owner)
        shown = runtime.run("publications")
        assert "points" in shown.stdout and "with its" in shown.stdout, shown
        assert '"name": "points"' in runtime.run("publications", "--json").stdout
        assert runtime.run("unpublish", "points").stdout == "points is published no more\n"
        again = runtime.run("unpublish", "points")
        assert again.returncode == 1 and "it was taken back" in again.stderr
        assert not listed()
