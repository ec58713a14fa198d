"""A daemon as its watchers see it: in the terminal, as metrics, and while it is down."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from gpu_worker.commands.monitor import top
from gpu_worker.commands.monitor.samples import SharedSamples
from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.messages import Report
from tests.system.worker_tools import Runtime, runtime

__all__ = ["runtime"]

parser = pytest.importorskip("prometheus_client.parser")
metrics = pytest.importorskip("gpu_worker.commands.monitor.metrics")


def test_top_looks_once(runtime: Runtime):
    with runtime.client("one") as client:
        client.request(Report(client.next_number()))
        shown = runtime.run("top", "--once").stdout
        document = json.loads(runtime.run("top", "--json").stdout)
    assert "1 sessions" in shown and "an application" in shown and "null:0" in shown
    assert "busy" not in shown
    assert [session["session"] for session in document["sessions"]] == ["one"]


def test_top_and_metrics_of_a_daemon_that_is_down(runtime: Runtime):
    for arguments in (["top", "--once"], ["top", "--json"]):
        result = runtime.run(*arguments)
        assert result.returncode == 3 and "no GPU worker runs" in result.stdout
    assert "vispark_up 0.0" in runtime.run("metrics", "--once").stdout
    assert not runtime.daemons()


def test_top_goes_on_when_a_daemon_comes_and_goes(runtime: Runtime):
    console, looks = Console(record=True, width=200, force_terminal=False), iter(range(3))

    def between(_: float) -> None:
        match next(looks):
            case 0:
                runtime.run("start")
            case 1:
                runtime.run("stop")
            case _:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        top.watch(str(runtime.path), 0.0, console, between)
    assert "down: no GPU worker runs" in console.export_text()


def test_rates_are_of_one_process(runtime: Runtime):
    samples = SharedSamples(str(runtime.path), seconds=0.0)
    with runtime.client("one") as client:
        before = samples.latest()
        for _ in range(5):
            client.request(Report(client.next_number()))
        rates = top.rates(before, samples.latest())
    assert rates["one"].requests > 0 and rates["one"].repeated == 0
    assert top.rates(None, before) == {}


def test_metrics_are_prometheus(runtime: Runtime):
    with runtime.client("one"), runtime.client("two"):
        families = {each.name: each for each in parser.text_string_to_metric_families(
            metrics.text(SharedSamples(str(runtime.path))).decode())}
    assert families["vispark_up"].samples[0].value == 1
    assert families["vispark_sessions"].samples[0].value == 2
    labels = [sample.labels for sample in families["vispark_requests"].samples]
    assert [each["session"] for each in labels] == ["one", "two"]
    assert {each["application"] for each in labels} == {"an application"}
    assert families["vispark_device_memory_bytes"].samples[0].labels["device"] == "null:0"
    assert families["vispark_requests"].type == "counter" and all(each.documentation for each in families.values())


def test_the_server_answers_its_own_names_only(runtime: Runtime):
    with runtime.client("one"), _served(runtime) as port:
        assert b"vispark_up 1.0" in _get(port, "/metrics")[1]
        assert _get(port, "/health") == (200, b'{"up": true, "reason": ""}\n')
        assert _get(port, "/metrics", host="evil.example")[0] == 403
        assert _get(port, "/secrets")[0] == 404


def test_health_of_a_daemon_that_is_down(runtime: Runtime):
    with _served(runtime) as port:
        status, body = _get(port, "/health")
        assert status == 503 and json.loads(body)["up"] is False
        with pytest.raises(WorkerError, match="cannot listen on"):
            metrics.server(SharedSamples(str(runtime.path)), "127.0.0.1", port)
    assert "is not host:port" in runtime.run("metrics", "--listen", "9464").stderr


def test_many_readers_are_one_request(runtime: Runtime):
    samples = SharedSamples(str(runtime.path), seconds=60.0)
    assert len({id(samples.latest()) for _ in range(10)}) == 1


@contextmanager
def _served(runtime: Runtime) -> Iterator[int]:
    with metrics.server(SharedSamples(str(runtime.path), seconds=0.0), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _get(port: int, path: str, host: str = "localhost") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
