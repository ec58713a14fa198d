"""The dashboard of an application in a real browser: its workers by each transport, and its plans by line."""

from __future__ import annotations

import contextlib
import http.client
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.system.browser_tools import PHONE, Page, browser
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context, warm_up
from vispark.errors import OptionError, PlanError, WorkerError
from vispark.runtime.driver.session import Session

__all__ = ["browser"]

PASSES = 30


def halved(row):
    return row / 2


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
        for vrdd in (rows.vmap(lambda row: row * 2), rows.vmap(halved)):
            vrdd.sum()                                              # the line of two plans
        page.shows("#lines tbody", "vmap lambda, vmap halved")
        page.shows("#workers tbody td:nth-child(3)", state)
        page.shows("#workers tbody td:nth-child(4)", transport)
        worker = next(iter(Session.of(sc).workers.known()))
        node = worker.home.machine if transport == "relay" else \
            administer(Status(), runtime_dir=worker.home.runtime_dir).worker
        page.shows("#workers tbody td:nth-child(2)", node)
        page.shows("h1", f"vispark application {sc.appName}, {sc.applicationId}")
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
    """Make a context look, during the block, as one that has no dashboard yet."""
    name = Session.of(sc).credentials.session
    running = vispark.runtime.monitor.dashboard._running
    dashboard = running.pop(name)
    try:
        yield sc
    finally:
        running[name] = dashboard


def _last_description(sc: SparkContext) -> str:
    sc._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = sc._jsc.sc().statusStore().jobsList(None)
    newest = max((jobs.apply(place) for place in range(jobs.size())), key=lambda job: job.jobId())
    return newest.description().toString()


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
    assert repr(shown) == "vispark dashboard: ended" and "token" not in str(shown._repr_mimebundle_())
    with pytest.raises(PlanError, match=r"this dashboard has ended; vispark\.dashboard\(\) serves another"):
        shown.link()


def test_sparks_pages_lead_to_it(local: Topology):
    pages = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.vispark.device": "host"}
    with local.context(pages) as sc:
        warm_up(sc)
        shown = vispark.dashboard(sc)
        way = f"{sc.uiWebUrl}/vispark/"
        assert _leads_to(way) == f"{shown.address}/"
        numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
        assert numbers.count() == 2
        assert '<a href="/vispark/">vispark</a>' in _last_description(sc)
        with urlopen(f"{sc.uiWebUrl}/jobs/") as jobs:
            assert '<a href="/vispark/">vispark</a>' in jobs.read().decode()
        blocks = vispark.Grid(4, 2).scatter(sc, 1.0)        # of plain RDDs
        for action in (lambda: vispark.Grid.gather(blocks), numbers.map(str).collect):
            sc.parallelize([0]).count()
            assert "href" not in _last_description(sc) and len(action()) > 1
            assert '<a href="/vispark/">vispark</a>' in _last_description(sc)
        shown.close()
        assert _leads_to(way) != f"{shown.address}/"
        assert len(numbers.map(str).take(1)) == 1 and "href" not in _last_description(sc)


def _leads_to(address: str) -> str | None:
    """Return the address that a page of Spark's redirects to, without a look at what is there."""
    split = urlsplit(address)
    connection = http.client.HTTPConnection(split.hostname, split.port, timeout=60)
    try:
        connection.request("GET", split.path)
        return connection.getresponse().headers["Location"]
    finally:
        connection.close()


def test_a_template_that_is_none_is_refused(local: Topology):
    with pytest.raises(OptionError, match=r"\{host\} and \{port\}"), local.context(
            {"spark.vispark.dashboardLink": "/proxy/{name}/"}) as sc:
        vispark.dashboard(sc)
    with pytest.raises(PlanError, match="no active SparkContext"):
        vispark.dashboard()
