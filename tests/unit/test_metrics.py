"""Names of metrics: those that ``promtool check metrics`` takes, by its rules, and by itself where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_worker.commands.monitor.samples import Sample, SharedSamples
from gpu_worker.protocol.messages import DeviceMemory, HeldVrdd, Reported, SessionStatus, StatusReport

parser = pytest.importorskip("prometheus_client.parser")
metrics = pytest.importorskip("gpu_worker.commands.monitor.metrics")

#: Prometheus' own, where ``.ci/promtool`` puts it unless it is installed.
_PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vispark"))

#: Units that names may not shorten, and types that they may not repeat.
_SHORT = {"ms", "us", "ns", "sec", "secs", "s", "b", "kb", "mb", "gb", "milliseconds", "kilobytes", "megabytes"}
_TYPES = {"counter", "gauge", "histogram", "summary"}


class _Fixed(SharedSamples):
    def latest(self) -> Sample:
        return Sample(0.0, StatusReport(1, "node", 7, 5.0, (
            SessionStatus("s", "app", 8, 1, 2, "driver", Reported(
                0, (HeldVrdd(1, "a name of the user's", 4, "<f4", 64, "host:0"),),
                (DeviceMemory("host:0", 64, 100, 2.5),), 5, 9, kernels=11, loaded=2, compiling=0.5,
                working=1.25, crowded=1), ended=3, faults=1),
            SessionStatus("busy", "app", 9, 1, 1, "driver", None))))


@pytest.fixture
def text() -> str:
    return metrics.text(_Fixed(None)).decode()


def test_names_follow_promtools_rules(text: str):
    families = list(parser.text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families) > 20
    for family in families:
        words = set(family.name.split("_"))
        assert re.fullmatch("vispark(_[a-z]+)+", family.name) and family.documentation.endswith(".")
        assert not words & (_SHORT | _TYPES), family.name
        assert all(sample.name.endswith("_total") == (family.type == "counter") for sample in family.samples)
        for sample in family.samples:
            assert sample.labels.keys() <= {"application", "session", "device"}


def test_counters_of_the_report_are_there(text: str):
    for line in ("launched_kernels_total", "loaded_kernels_total", "compile_seconds_total", "plan_seconds_total",
                 "out_of_memory_plans_total", "kernel_faults_total", "ended_processes_total"):
        assert f"vispark_{line}{{" in text
    assert 'vispark_device_busy_seconds_total{application="app",device="host:0",session="s"} 2.5' in text
    assert "a name of the user's" not in text


def _checked(text: str) -> tuple[int, str]:
    """Return the exit status of promtool, and its objections to metrics."""
    ended = subprocess.run([_PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60,
                           check=False)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.skipif(_PROMTOOL is None, reason="no promtool: run .ci/promtool")
def test_promtool_takes_them(text: str):
    assert _checked(text) == (0, "")
    status, output = _checked(text.replace("vispark_requests_total", "vispark_requests"))
    assert status == 3 and 'counter metrics should have "_total" suffix' in output
