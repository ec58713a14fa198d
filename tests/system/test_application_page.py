"""The dashboard of an application in a real browser: its workers by each transport, and its plans by line."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from tests.system.browser_tools import PHONE, Page, browser
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark.errors import OptionError, PlanError, WorkerError
from vispark.runtime.driver.session import Session

__all__ = ["browser"]

PASSES = 30


@pytest.mark.parametrize(("transport", "state"), [("unix", "up"), ("tcp", "up"), ("relay", "answers plans")])
def test_plans_are_shown_by_the_users_line(local: Topology, browser, transport: str, state: str):
    with host_context(local, transport=transport, dashboardLink="/proxy/{port}/") as sc:
        rows = sc.parallelize([np.float32([number, 1]) for number in range(100)], 4).cache("GPU").setName("points")
        rows.count()
        shown = vispark.dashboard(sc)
        assert vispark.dashboard(sc) is shown
        link = shown.link()
        assert link.startswith(f"/proxy/{shown.address.rpartition(':')[2]}/?token=")
        page = Page(browser, PHONE if transport == "tcp" else (1280, 900))
        page.open(f"{shown.address}/?{link.partition('?')[2]}")
        page.shows("#lines tbody", "no plan was answered")
        for _ in range(PASSES):
            rows.reduce(lambda first, second: first + second)       # the line that is shown
        page.shows("#lines tbody", "the line that is shown")
        page.shows("#lines tbody td:nth-child(2)", str(PASSES))
        page.shows("#workers tbody td:nth-child(2)", state)
        page.shows("#workers tbody td:nth-child(3)", transport)
        page.shows("#vrdds tbody", "points")
        assert Session.of(sc).context._jsc.getLocalProperty("spark.job.description") is None
        assert len(rows.map(str).take(1)) == 1
        assert f'<a href="/proxy/{shown.address.rpartition(":")[2]}/">vispark</a>' in _last_description(sc)
        page.check()
        page.close()
        with pytest.raises(WorkerError, match="cannot listen"), _another(sc, local) as other:
            vispark.dashboard(other, port=int(shown.address.rpartition(":")[2]))


@contextlib.contextmanager
def _another(sc: SparkContext, local: Topology):
    """The same context as one that has no dashboard yet."""
    name = Session.of(sc).credentials.session
    running = vispark.monitor.dashboard._running
    found = running.pop(name)
    try:
        yield sc
    finally:
        running[name] = found


def _last_description(sc: SparkContext) -> str:
    sc._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = sc._jsc.sc().statusStore().jobsList(None)
    found = max((jobs.apply(place) for place in range(jobs.size())), key=lambda job: job.jobId())
    return found.description().toString()


def test_it_ends_with_its_context_and_shows_workers_that_are_down(local: Topology, browser):
    with host_context(local) as sc:
        shown = vispark.dashboard(sc)
        page = Page(browser).open(shown.link())
        page.shows("#state", "1 worker")
        assert "http://127.0.0.1:" in repr(shown)
        bundle = shown._repr_mimebundle_()
        assert "?token=" in bundle["text/plain"] and bundle["text/plain"].split()[-1] in bundle["text/html"]
    page.shows("#state", "does not answer")
    page.close()


def test_a_template_that_is_none_is_refused(local: Topology):
    with pytest.raises(OptionError, match=r"\{host\} and \{port\}"), local.context(
            {"spark.vispark.dashboardLink": "/proxy/{name}/"}) as sc:
        vispark.dashboard(sc)
    with pytest.raises(PlanError, match="no active SparkContext"):
        vispark.dashboard()
