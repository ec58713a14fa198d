"""A driver that ends in order: what its session held is given back at once, not after the lease."""

from __future__ import annotations

import pytest

from gpu_worker.client.connection import finish
from gpu_worker.protocol.errors import Unauthorized, WorkerUnavailable
from tests.leaks import is_alive
from tests.system.worker_tools import Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]


def test_a_finished_session_is_gone_at_once_and_others_stay(runtime: Runtime):
    with runtime.lease(), runtime.client() as client, runtime.client("other") as other:
        finish(hello())
        assert [session.session for session in runtime.status().sessions] == ["other"]
        assert eventually(lambda: not is_alive(client.pid))
        ask(other)


def test_only_the_session_itself_may_finish_it(runtime: Runtime):
    with runtime.client() as client:
        with pytest.raises(Unauthorized):
            finish(hello(secret=b"x" * 32))
        ask(client)


def test_finishing_what_is_not_there(runtime: Runtime):
    with pytest.raises(WorkerUnavailable):
        finish(hello())
    runtime.start()
    finish(hello("never-seen"))
    assert runtime.status().sessions == ()
