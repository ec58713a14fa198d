"""Work that is done again after a loss, how often, and what the log says of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vispark.errors import NodeSilent, VisparkError, WorkerLost
from vispark.options import Options
from vispark.runtime.driver import retry
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.retry import Recomputed, shortened, until_done
from vispark.runtime.driver.worlds import Worlds


def calls(errors: list[VisparkError | None]) -> int:
    """Return the number of times that something is done that fails so, one after the other."""
    options, count = Options.read([("spark.vispark.attempts", "3")]), 0
    session = SimpleNamespace(recomputed=Recomputed(), worlds=Worlds(), options=options, released=Released())

    def once() -> None:
        nonlocal count
        count += 1
        if error := errors.pop(0):
            raise error

    try:
        until_done(session, once)
    except VisparkError:
        assert errors == [None] * len(errors)
    return count


def test_a_loss_is_repeated_and_the_log_says_when_it_is_made_up_for(caplog: pytest.LogCaptureFixture):
    assert calls([WorkerLost("the peer is gone: index 7 is out of range for an axis of length 5, at the subscript ab1"),
                  WorkerLost("many words " * 60), None]) == 3
    first, second, last = [record.getMessage() for record in caplog.records]
    assert first == "lost under a plan, which is repeated (1 of 3): the peer is gone: index 7 is out of range for an " \
                    "axis of length 5"
    assert len(second) < 270 and second.endswith(" ...") and last.startswith("what was lost is there again, after ")
    assert calls([WorkerLost("gone")] * 4 + [None]) == 4


def test_a_node_that_stays_silent_is_an_error_after_one_more_try(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retry, "_SILENT_SECONDS", 0.0)
    assert calls([NodeSilent("no daemon answers")] * 2 + [None]) == 2
    assert calls([NodeSilent("no daemon answers"), None]) == 2


def test_a_node_that_falls_silent_behind_another_loss_is_tried_once_more(monkeypatch: pytest.MonkeyPatch):
    """Fail as when a node is killed: first its process is lost, and its daemon is started anew meanwhile."""
    monkeypatch.setattr(retry, "_SILENT_SECONDS", 0.0)
    assert calls([WorkerLost("gone"), NodeSilent("no daemon answers"), None]) == 3
    assert calls([WorkerLost("gone"), NodeSilent("no daemon answers"), WorkerLost("gone"), None]) == 4
    assert calls([WorkerLost("gone"), *[NodeSilent("no daemon answers")] * 2, None]) == 3


def test_another_node_that_falls_silent_is_tried_once_more_too(monkeypatch: pytest.MonkeyPatch):
    """Fail as when the daemons of two nodes are killed one after the other under a plan."""
    monkeypatch.setattr(retry, "_SILENT_SECONDS", 0.0)
    third, fourth = NodeSilent("no daemon answers on 3"), NodeSilent("no daemon answers on 4")
    assert calls([WorkerLost("gone"), third, fourth, None]) == 4
    assert calls([third, fourth, third, None]) == 3


def test_the_log_has_the_first_line_of_an_error():
    assert shortened(WorkerLost("one\ntwo", detail="three")) == "one"
