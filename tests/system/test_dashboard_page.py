"""The dashboard of a node in a real browser: a loop of Spark's as it runs, a daemon that is killed, many viewers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from gpu_worker.commands.monitor import samples
from gpu_worker.commands.web import server
from gpu_worker.protocol.errors import WorkerUnavailable
from gpu_worker.system.paths import locate
from tests import leaks
from tests.system.browser_tools import PHONE, Page, browser, serving
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context, report
from tests.system.worker_tools import eventually

__all__ = ["browser"]

dashboard = pytest.importorskip("gpu_worker.commands.monitor.dashboard")

PASSES = 400
#: The number of plans that a page tells.
_TOTAL = "#totals div:nth-child(4)"


class ServedDashboard:
    """A dashboard that is served, and how often its daemon was asked."""

    def __init__(self, topology: Topology):
        self.runtime_dir = topology.nodes[0].runtime_dir
        self.sock = server.listen("127.0.0.1", 0)
        self.dashboard = dashboard.Dashboard(locate(str(self.runtime_dir)), self.sock)
        self.asked = 0


@pytest.fixture
def shown(local: Topology, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedDashboard]:
    served = ServedDashboard(local)
    asking = samples.sample

    def counted(runtime_dir: str | None) -> samples.Sample:
        served.asked += 1
        return asking(runtime_dir)

    monkeypatch.setattr(samples, "sample", counted)
    with serving(served.dashboard):
        yield served


def test_a_loop_that_starts_later_is_shown_at_the_rate_that_the_driver_counts(
        local: Topology, browser, shown: ServedDashboard):
    page, small = Page(browser).open(shown.dashboard.link()), Page(browser, PHONE).open(shown.dashboard.link())
    page.shows("#state", "down: no GPU worker runs")
    with host_context(local) as sc:
        page.shows("#sessions tbody", sc.applicationId)
        rows = sc.parallelize([np.float32([number, 1]) for number in range(100)], 4).cache("GPU").setName("points")
        rows.count()
        page.shows("#vrdds tbody", "points")
        page.shows(_TOTAL, f"plans{report(sc).plans}")
        assert eventually(lambda: page.page.evaluate("points.at(-1).rates.plans === 0"), 60)
        already, before = _plans(page), page.page.evaluate("points.length")
        for _ in range(PASSES):
            rows.reduce(lambda first, second: first + second)
        reported = report(sc)
        page.shows(_TOTAL, f"plans{reported.plans}")
        assert reported.kernels >= PASSES and reported.loaded >= 1 and reported.crowded == 0
        assert 0 < reported.busy <= reported.working + reported.compiling + 1
        # A sample may have been under way when the loop began: it is in the one behind it, a second later, then.
        assert page.page.evaluate(
            f"points.findIndex((point, place) => place >= {before} && point.rates.plans > 0)") <= before + 1
        assert abs(_plans(page) - already - PASSES) <= 0.1 * PASSES
        assert "0 B" in small.page.locator("#sessions").inner_text()
    for view in (page, small):
        view.check()
        view.close()


def _plans(page: Page) -> float:
    """Return the number of plans under the curve of their rate that the page has drawn."""
    return page.page.evaluate("""points.reduce((sum, point, place) => sum + (place && point.rates.plans
        ? point.rates.plans * (point.at - points[place - 1].at) : 0), 0)""")


def test_a_daemon_that_is_killed_is_down_and_comes_back(local: Topology, browser, shown: ServedDashboard):
    """No application is there meanwhile, as its driver would start a daemon at once."""
    page = Page(browser).open(shown.dashboard.link())
    _start_daemon(shown)
    page.shows("#state", "up")
    os.kill(_daemon(shown), signal.SIGKILL)
    page.shows("#state", "down: ")
    assert page.page.evaluate("document.body.className") == "down"
    _start_daemon(shown)
    page.shows("#state", f"process {_daemon(shown)}")
    with host_context(local) as sc:
        assert sc.parallelize(range(4), 2).cache("GPU").count() == 4
        page.shows("#sessions tbody", sc.applicationId)
    page.check()
    page.close()


def _start_daemon(shown: ServedDashboard) -> None:
    subprocess.run([sys.executable, "-m", "gpu_worker", "start"], check=True, timeout=60,
                   env=os.environ | {"VISPARK_RUNTIME_DIR": str(shown.runtime_dir)})


def _daemon(shown: ServedDashboard) -> int:
    pid, = [each.pid for each in leaks.processes_of(shown.runtime_dir) if "start" in each.command.split()]
    return pid


def test_ten_viewers_are_one_request_to_the_daemon_for_each_sample(browser, shown: ServedDashboard):
    page = Page(browser).open(shown.dashboard.link())
    page.page.locator("#state.down, #state.up").wait_for()
    with ExitStack() as viewers:
        streams = [viewers.enter_context(_stream(shown)) for _ in range(9)]
        before = shown.asked
        events = [_read(stream, 3) for stream in streams]
        assert all(count == 3 for count in events)
        # Each was sent the newest sample at once, and two more.
        assert 2 <= shown.asked - before <= 4
    page.check()
    page.close()


@contextmanager
def _stream(shown: ServedDashboard) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(*shown.sock.getsockname(), timeout=60)
    try:
        connection.request("GET", "/events", headers={"Authorization": f"Bearer {shown.dashboard.access.secret}"})
        yield connection.getresponse()
    finally:
        connection.close()


def _read(stream: http.client.HTTPResponse, count: int) -> int:
    """Read so many events, and return how many there were."""
    return sum(line.startswith(b"data: ") for line in (stream.readline() for _ in range(2 * count)))


def test_a_hidden_page_closes_its_stream_and_has_all_when_it_is_seen_again(browser, shown: ServedDashboard):
    page = Page(browser).open(shown.dashboard.link())
    page.page.locator("#state.down, #state.up").wait_for()
    page.page.evaluate("""() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); }""")
    assert page.page.evaluate("events") is None
    page.page.evaluate("""() => { Object.defineProperty(document, 'hidden', {value: false});
        document.dispatchEvent(new Event('visibilitychange')); }""")
    page.page.wait_for_timeout(1500)
    assert page.page.evaluate("points.length") > 1
    page.check()
    page.close()


def test_a_command_that_is_ended_leaves_no_file(tmp_path):
    process = subprocess.Popen([sys.executable, "-m", "gpu_worker", "dashboard", "--port", "0"], text=True,
                               stdout=subprocess.PIPE, env=os.environ | {"VISPARK_RUNTIME_DIR": str(tmp_path)})
    with process:
        link = process.stdout.readline()
        assert link.startswith("http://127.0.0.1:")
        assert eventually((tmp_path / "dashboard.json").exists)
        second = subprocess.run(process.args, capture_output=True, text=True, timeout=60, check=False,
                                env=os.environ | {"VISPARK_RUNTIME_DIR": str(tmp_path)})
        assert second.returncode == 1 and f"runs already at {link.partition('/?')[0]}, process" in second.stderr
        process.terminate()
        assert process.wait(60) in (143, -signal.SIGTERM)
    assert not (tmp_path / "dashboard.json").exists()
    # A record that a killed one left, whose number is another program's now.
    (tmp_path / "dashboard.json").write_text(json.dumps({"address": "http://127.0.0.1:1", "secret": "s", "pid": 1}))
    dashboard.check_alone(locate(str(tmp_path)))
    with pytest.raises(WorkerUnavailable, match="no dashboard runs for"):
        dashboard.another_link(locate(str(tmp_path)))
