"""Dashboard of a daemon: what its page is given, who may read it, and how often the daemon is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.commands.monitor.samples import Sample, SharedSamples, rates
from gpu_worker.commands.web import stream
from gpu_worker.commands.web.access import Access
from gpu_worker.protocol.messages import DeviceMemory, Reported, SessionStatus, StatusReport

testclient = pytest.importorskip("starlette.testclient")
dashboard = pytest.importorskip("gpu_worker.commands.monitor.dashboard")
sampler = pytest.importorskip("gpu_worker.commands.monitor.sampler")


def _sample(at: float, plans: int) -> Sample:
    report = Reported(0, (), (DeviceMemory("host:0", 8, 100, plans / 40),), 5, plans, plans=plans)
    return Sample(at, StatusReport(1, "node", 1, at, (SessionStatus("s", "app", 7, 1, 1, "held", report),)))


def test_points_have_sums_and_rates():
    first, last = _sample(0.0, 10), _sample(2.0, 30)
    point = sampler.point(sampler.described(last, rates(first, last)), 5.0)
    assert point["devices"] == {"host:0": 8} and point["rates"]["plans"] == 10.0 and point["up"]
    assert sampler.described(last, rates(first, last))["sessions"][0]["rates"]["devices"] == {"host:0": 0.25}


def test_a_slow_viewer_has_what_it_missed_at_once():
    taken = sampler.Sampler(SharedSamples(None))
    for at in range(700):
        node = sampler.described(_sample(float(at), at), {})
        taken.take(node, sampler.point(node, float(at)))
    event, seen = taken.after(697)
    assert len(json.loads(event[6:])["points"]) == 3 and seen == 700
    assert len(json.loads(taken.after(0)[0][6:])["points"]) == stream.HISTORY


def test_a_daemon_that_is_down_is_shown_as_down(tmp_path: Path):
    access = Access()
    application = dashboard.application(SharedSamples(str(tmp_path)), access)
    with testclient.TestClient(application, base_url="http://127.0.0.1") as browser:
        assert browser.get("/").status_code == browser.get("/pages/page.js").status_code == 403
        assert browser.get("/health").status_code == 503
        browser.get(f"/?token={access.new_token()}")
        assert "<table" in browser.get("/").text and browser.get("/assets/vendor/uplot/LICENSE").status_code == 200
        assert "vispark_up 0.0" in browser.get("/metrics").text


_ENDING = """
import atexit, threading, time
from gpu_worker.commands.web import server, stream

looked = threading.Semaphore(0)

class Fast(stream.Feed):
    def look(self):
        looked.release()
        return {"up": True}, {}

async def application(scope, receive, send):
    await receive()
    async with Fast(0.01).running():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})

pages = server.PageServer(application, server.listen("127.0.0.1", 0))
thread = threading.Thread(target=pages.run, daemon=True)
thread.start()
# As a session that ends does; threads are not started any more then.
atexit.register(lambda: (time.sleep(0.2), pages.stop(), thread.join()))
for _ in range(9):
    looked.acquire()
"""


def test_a_program_that_ends_with_a_dashboard_says_nothing():
    ended = subprocess.run([sys.executable, "-c", _ENDING], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
