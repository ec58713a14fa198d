"""A few of the refusals of :mod:`tests.chaos.refusals`: a right answer or a typed error, and all is still held."""

from __future__ import annotations

import shutil

import pytest

from tests.chaos.refusals import kinds, sweep

pytestmark = [pytest.mark.chaos, pytest.mark.skipif(shutil.which("gcc") is None, reason="the shim is compiled by gcc")]


@pytest.mark.parametrize("calls", [("mmap", "memfd_create", "ftruncate"), ("write", "sendmsg", "recvmsg"),
                                   ("open", "accept", "epoll_ctl"), ("pthread_create",)], ids="-".join)
def test_the_process_stays_and_holds_what_it_held(tmp_path_factory: pytest.TempPathFactory, calls: tuple[str, ...]):
    refusals = sweep(tmp_path_factory.mktemp("v"), 2, 2, kinds(calls))
    assert not refusals.failures and sum(refusals.outcomes.values()) > 1 and refusals.outcomes["typed"]
