"""Environment and checks that all tests share: an environment of their own, and one check per capability that a marker
asks for.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import jvm, loggers

# What a collection of tests makes, it keeps: to look through it again and again takes a quarter of the time.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore interrupts; what is tested, and Arrow, expects Python's own handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent

#: Short, because a socket's path in it may have no more than 107 bytes.
_runtime = tempfile.TemporaryDirectory(prefix="vt-")
atexit.register(_runtime.cleanup)

# Python workers of Spark import the code under test and the tests' own modules, and run the same interpreter. No test
# ever meets the daemon that the user runs, nor an address beyond this machine.
os.environ.update({
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
    "VISPARK_RUNTIME_DIR": _runtime.name,
    "VISPARK_HISTORY": os.path.join(_runtime.name, "history.db"),
    # Whatever this run starts, or what that starts, has it: see tests/leaks.py.
    "VISPARK_TEST_RUN": _runtime.name,
})
if importlib.util.find_spec("hypothesis") is not None:      # the environment of PySpark 3.5 does without it
    from hypothesis import HealthCheck, settings

    # How long drawing takes says how busy the machine is.
    settings.register_profile("busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
if importlib.util.find_spec("xdist") is not None:           # whose hook below is not called otherwise
    from tests.scheduler import FileScheduling
for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"):
    os.environ.pop(name, None)

#: Programs of the environment's wheels come before the system's.
_PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

_MISSING = {
    "gpu": "no CUDA device on this machine" if not list(Path("/dev").glob("nvidia[0-9]*")) else "",
    "mpi": "no mpi4py or no mpirun in this environment"
           if importlib.util.find_spec("mpi4py") is None or shutil.which("mpirun", path=_PROGRAMS) is None else "",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, reason in _MISSING.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Leave what is imported out of the collections of garbage in the tests, of which there are thousands."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    _noted["terminal"] = config.pluginmanager.get_plugin("terminalreporter")
    # pytest adds these to loggers that do not propagate, and one of PySpark's makes a handler that it is given write
    # JSON, for all loggers and all tests that follow.
    logs = config.pluginmanager.get_plugin("logging-plugin")
    for handler in (logs.caplog_handler, logs.report_handler):
        handler.setFormatter = lambda _: None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Return our scheduler in place of xdist's by files."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once which test fails and of what; a run that is cut off says nothing else of it."""
    if report.failed and (terminal := _noted["terminal"]):
        crash = getattr(report.longrepr, "reprcrash", None)
        terminal.write(f"\nFAILED {report.nodeid} ({report.when}): {str(crash or report.longrepr)[:500]}\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Note how loggers are before a file's first test, for the check after its last."""
    if _noted.get("file") != item.path:
        # What earlier files imported is left out, too: each test on Spark collects garbage, to see what it leaves.
        pytest_collection_finish()
        _noted.update(file=item.path, loggers=loggers.state())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in the report of a test that fails if the JVM of this process is gone, and why."""
    report = yield
    if report.failed and (reason := jvm.end_of_ours()):
        report.sections.append(("The driver's JVM", reason))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail a file's last test where the file, with all its fixtures gone, leaves loggers other than they were."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        changed = loggers.changed(_noted["loggers"])
        assert not changed, f"{item.path.name} leaves loggers changed: {changed}"
    return result


@pytest.fixture(autouse=True)
def loggers_stay() -> Iterator[None]:
    """Fail a test that leaves loggers other than they were: later tests of its process would hear less, or more."""
    before = loggers.state()
    yield
    changed = loggers.changed(before)
    assert not changed, f"the test leaves loggers changed: {changed}"


#: The file whose tests run, and how its loggers were before.
_noted: dict = {}
