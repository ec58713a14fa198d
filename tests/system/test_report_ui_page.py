"""``vispark report ui`` in a real browser: jobs, a job, two runs; by keyboard, on a desktop and a phone; bad input."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.web import server
from tests.system.browser_tools import DESKTOP, PHONE, Page, browser, serving
from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN
from vispark.migrate.store.history import History
from vispark.migrate.store.validations import keep_validation
from vispark.migrate.validate.compare import Tolerance
from vispark.migrate.validate.validation import StatementResults, validated

__all__ = ["browser"]

report_ui = pytest.importorskip("vispark.migrate.report.ui")
testclient = pytest.importorskip("starlette.testclient")

SOURCE = """import numpy as np
data = sc.parallelize(range(9)).cache()
for _ in range(3):
    w = data.map(lambda x: x * 2).sum()  # <script>alert(1)</script> & a line that is rather long, as lines of programs
"""


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Clusters().create("pair", "local", {"cores": "2"})
    history = History()
    job = _job(history, tmp_path, "kmeans.py", 2.0)
    _job(history, tmp_path, "differs.py", 2.5)
    history.add_run(job, kind="gpu", state="done", seconds=1.0, cluster="pair")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    history.add_run(job, kind="tune", state="done", seconds=2.5, log=str(tmp_path / "trace.json"),
                    conf={"spark.vispark.snapshotShare": "0.1"})
    history.set_trace(2, str(tmp_path / "trace.json"), {
        "profile": {"kernel": 2.0, "driver": 1.0}, "lines": {f"{tmp_path}/gpu_kmeans.py:4": {"kernel": 2.0}},
        "plans": {f"{tmp_path}/gpu_kmeans.py:4": 3}}, "local-1")
    history.add_prediction(job, 4, "h200", 0.05, 0.2)
    history.add_prediction(job, 4, "a10g", 0.5, 0.7)
    return history


def _job(history: History, folder: Path, name: str, other: float) -> int:
    cpu, gpu = folder / name, folder / f"gpu_{name}"
    cpu.write_text(SOURCE)
    gpu.write_text(SOURCE.replace(".cache()", '.cache("GPU")'))
    runs = [[StatementResults(("", "w"), 4, (1.0, 2.0, value), times)]
            for value, times in ((2.0, (1.0, 2.0, 3.0)), (other, (0.1, 0.2, 0.3)))]
    validation = validated(runs[0], runs[0], runs[1], Tolerance())
    return keep_validation(history, cpu, gpu, type(validation)(validation.statements, (), (), 9.0, 3.0))


class ServedReport:
    """A report that is served."""

    def __init__(self) -> None:
        self.sock = server.listen("127.0.0.1", 0)
        self.where = self.sock.getsockname()
        self.report = report_ui.ReportServer(self.sock)


@pytest.fixture
def shown(history: History) -> Iterator[ServedReport]:
    served = ServedReport()
    with serving(served.report):
        yield served


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_from_the_jobs_to_two_runs_by_keyboard(browser, shown: ServedReport, size: tuple[int, int]):
    page = Page(browser, size).open(shown.report.link())
    page.shows("main", "kmeans.py")
    page.accessible()
    page.page.keyboard.press("Tab")
    assert page.focused() == "to the content"
    page.press_until("search")
    page.page.keyboard.type("KM")
    page.page.keyboard.press("Enter")
    page.shows("tbody", "kmeans.py")
    page.page.wait_for_url("**/?search=KM")
    assert "differs.py" not in page.page.locator("tbody").inner_text()
    page.press_until("kmeans.py")
    page.page.keyboard.press("Enter")
    page.shows("h1", "kmeans.py")
    _job_is_shown(page)
    page.accessible()
    page.press_until("Source")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url("**#source")
    page.press_until("compare")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url("**/compare?first=1&second=6")
    page.shows("tbody", "spark.vispark.snapshotShare")
    page.accessible()
    page.press_until("kmeans.py")
    page.page.keyboard.press("Enter")
    page.shows("h1", "kmeans.py")
    page.press_until("Clusters")
    page.page.keyboard.press("Enter")
    page.shows("tbody", "kmeans.py, run 5")
    page.accessible()
    page.check()
    page.close()


def _job_is_shown(page: Page) -> None:
    body = page.page.locator("main").inner_text()
    for text in ("equal", "9 s -> 3 s, x3", "as predicted", "outside of the interval", "1 s -> 100 ms, x10",
                 "Where the time went", "in kernels", "gpu_kmeans.py:4",
                 '+data = sc.parallelize(range(9)).cache("GPU")', "<script>alert(1)</script>"):
        assert text in body, text
    margin = page.page.locator(".source tr.said").first
    assert "cache" in margin.inner_text() and margin.locator(".advice").inner_text()
    assert page.overflow() <= 0


def test_files_to_be_mailed_and_traces_are_given_out(history: History):
    with _client() as client:
        mailed, trace = client.get("/job/1/mail"), client.get("/run/6/trace")
        assert "<style>" in mailed.text and "<link" not in mailed.text and "compare" not in mailed.text
        assert mailed.headers["content-disposition"] == "attachment; filename=kmeans.html"
        assert trace.json() == {"traceEvents": []}
        assert "default-src 'none'" in mailed.headers["content-security-policy"]


def test_of_a_job_that_differs_nothing_is_faster(history: History):
    with _client() as client:
        assert "x3" not in client.get("/job/2").text and "differs" in client.get("/job/2").text
        compared = client.get("/job/2/compare?first=3&second=4").text
        assert "no ratio is said" in compared and "x3" not in compared


@pytest.mark.parametrize(("path", "status", "text"), [
    ("/job/99", 404, "the history has no job 99"), ("/job/1/compare?first=1&second=3", 404, "no two such runs"),
    ("/job/1/compare?first=x&second=%F0", 404, "no two such runs"), ("/run/1/trace", 404, "not there any more"),
    ("/run/77/trace", 404, "no run 77"), ("/nowhere", 404, "no such page"), ("/job/x", 404, "no such page"),
    ("/clusters?ask=1", 200, "pair"),
    ("/?offset=-4", 200, "kmeans.py"), ("/?search=%3Cb%3E", 200, "no job of that name")])
def test_wrong_addresses_are_answered(history: History, path: str, status: int, text: str):
    with _client() as client:
        answer = client.get(path)
    assert answer.status_code == status and text in answer.text and "<b>" not in answer.text


def _client():
    access = report_ui.Access()
    client = testclient.TestClient(report_ui.application(access), base_url="http://127.0.0.1")
    client.get(f"/?token={access.new_token()}")
    return client


def test_a_link_to_a_job_opens_all_pages(browser, shown: ServedReport):
    page = Page(browser).open(shown.report.link(2))
    page.shows("h1", "differs.py")
    page.check()
    page.page.get_by_role("link", name="Jobs").click()
    page.shows("tbody", "kmeans.py")
    page.check()
    page.close()


def test_a_token_opens_once_and_the_right_server(browser, shown: ServedReport):
    link = shown.report.link()
    page = Page(browser).open(link)
    other = Page(browser)
    other.page.goto(link)
    assert "opened already" in other.page.content()
    other.page.goto(shown.report.link().replace("token=", "token=9"))
    assert "opened already, is too old, or of another server" in other.page.content()
    page.check()
    page.close()
    other.close()


def test_a_newer_store_is_said_and_nothing_is_written(history: History):
    with _client() as client:
        connection = sqlite3.connect(history.path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        answer = client.get("/")
        assert answer.status_code == 503 and "a newer vispark wrote" in answer.text
    assert CliRunner().invoke(main, ["report", "ui", "--port", "0"]).exit_code == UNKNOWN


def test_a_writer_is_waited_for_and_a_reader_holds_up_none(history: History):
    with _client() as client:
        writer = sqlite3.connect(history.path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO job (name, script, created) VALUES ('half.py', 'half.py', 9e9)")
        assert "half.py" not in client.get("/").text
        writer.execute("COMMIT")
        writer.close()
        assert "half.py" in client.get("/").text


def test_a_viewer_that_never_reads_holds_up_nobody(shown: ServedReport):
    with socket.create_connection(shown.where) as silent:
        request = "\r\n".join(["GET /job/1 HTTP/1.1", "Host: 127.0.0.1",
                               f"Authorization: Bearer {shown.report.access.secret}", "", ""])
        silent.sendall(request.encode() * 50)
        with socket.create_connection(shown.where, timeout=60) as reader:
            reader.sendall(request.encode())
            assert reader.recv(12) == b"HTTP/1.1 200"


def test_a_port_that_is_taken_is_said():
    with server.listen("127.0.0.1", 0) as taken:
        result = CliRunner().invoke(main, ["report", "ui", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == UNKNOWN and "--port 0 takes any port that is free" in result.output


def test_the_command_ends_by_a_signal(history: History):
    with subprocess.Popen([sys.executable, "-m", "vispark.migrate", "report", "ui", "--port", "0", "--job", "1"],
                          text=True, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout.readline().endswith("&job=1\n")
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
