"""Drivers on other nodes: who is let in over TCP, what is refused, and what a broken connection looks like."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_worker.client import Client, connect
from gpu_worker.protocol.errors import WorkerUnavailable
from gpu_worker.protocol.messages import Reach
from tests.system.worker_tools import SECONDS, Runtime, ask, hello, runtime

__all__ = ["runtime"]

HOST = "127.0.0.1"


@pytest.fixture
def reach(runtime: Runtime) -> Iterator[Reach]:
    """Where a session of a worker is reached, whose executor must not notice anything."""
    with runtime.client(reach=HOST) as executor:
        yield executor.reach
        ask(executor)
        with runtime.client(reach=HOST) as again:
            assert (again.pid, again.reach) == (executor.pid, executor.reach)


def visiting(reach: Reach, **changes) -> Client:
    return connect(hello(role="driver", anchor=0, **changes), reach=reach, timeout=SECONDS)


def test_a_port_is_open_only_where_it_was_asked_for(runtime: Runtime):
    with runtime.client() as local:
        assert local.reach is None
        with runtime.client("other", reach=HOST) as other:
            with pytest.raises(WorkerUnavailable, match="no session of this name"):
                visiting(other.reach)
            with visiting(other.reach, session="other") as driver:
                assert driver.pid == other.pid != local.pid
