"""Finding of what a test leaves behind."""

from __future__ import annotations

import logging
import mmap
import os
import subprocess
import sys
import threading
import uuid

import pytest

from tests import leaks, loggers


@pytest.fixture
def before() -> leaks.ProcessSnapshot:
    return leaks.ProcessSnapshot.take()


def _left(before: leaks.ProcessSnapshot) -> str:
    return "\n".join(before.leaked(patience=0))


def test_nothing_left_is_nothing_found(before):
    assert before.leaked() == []


def test_a_descriptor(before):
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert _left(before) == "descriptor: /dev/null (+1)"
    os.close(descriptor)


def test_a_memfd_and_its_mapping(before):
    descriptor = os.memfd_create("leaked")
    os.ftruncate(descriptor, 4096)
    memory = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    assert "mapping: /memfd:leaked (deleted) (+1)" in _left(before)
    memory.close()
    assert before.leaked() == []


def test_a_thread(before):
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="leaked")
    thread.start()
    assert "thread: leaked" in _left(before)
    end.set()
    thread.join()


def test_a_child(before):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        process.stdin.write(b"\n")
        process.stdout.read(1)      # a process has no command for a moment after its start
        assert f"child process {process.pid}: cat" in _left(before)
        process.kill()
    assert before.leaked() == []


def test_shared_memory(before):
    path = f"/dev/shm/leaked-{uuid.uuid4().hex}"
    with open(path, "x"):
        pass
    assert path in _left(before)
    os.unlink(path)


@pytest.mark.slow
def test_shared_memory_of_another_run(before):
    code = ("import mmap, multiprocessing, sys; file = open(sys.argv[1], 'x+b'); file.truncate(4096); "
            "held = mmap.mmap(file.fileno(), 0); semaphore = multiprocessing.get_context('spawn').Semaphore(); "
            "print(semaphore._semlock.name, flush=True); sys.stdin.read()")
    path = f"/dev/shm/leaked-{uuid.uuid4().hex}"
    environment = os.environ | {"VISPARK_TEST_RUN": "another"}
    with subprocess.Popen([sys.executable, "-c", code, path], env=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        semaphore = f"/dev/shm/sem.{process.stdout.readline().strip().removeprefix('/')}"
        try:
            assert os.path.exists(semaphore)
            assert path not in (left := _left(before)) and semaphore not in left
            process.kill()
            process.wait()
            assert path in _left(before)
        finally:
            os.unlink(path)


def test_processes_of_a_runtime_directory(tmp_path):
    code = "import time; time.sleep(60)"
    environment = os.environ | {"VISPARK_RUNTIME_DIR": str(tmp_path)}
    by_variable = subprocess.Popen([sys.executable, "-c", code], env=environment)
    by_argument = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    by_name = subprocess.Popen([sys.executable, "-c", code + "  # " + str(tmp_path) + "/below"])
    try:
        numbers = {process.pid for process in leaks.processes_of(tmp_path)}
        assert numbers == {by_variable.pid, by_argument.pid}
    finally:
        for process in (by_variable, by_argument, by_name):
            process.kill()
            process.wait()


def _level(logger: logging.Logger) -> None:
    logger.setLevel("ERROR")


def _handler(logger: logging.Logger) -> None:
    logger.addHandler(logging.NullHandler())


def _propagate(logger: logging.Logger) -> None:
    logger.propagate = False


def _remembered(logger: logging.Logger) -> None:
    logger.manager.disable = logging.CRITICAL
    logger.error("the answer whether this is heard is remembered")
    logger.manager.disable = logging.NOTSET


@pytest.mark.parametrize("change", [_level, _handler, _propagate, _remembered])
def test_loggers_left_other_than_they_were(change):
    logger = logging.getLogger("gpu_worker.leaked")
    before = loggers.state()
    assert loggers.changed(before) == []
    change(logger)
    assert [line.partition(":")[0] for line in loggers.changed(before)] == ["gpu_worker.leaked"]
    del logging.root.manager.loggerDict["gpu_worker.leaked"]
    assert loggers.changed(before) == []


def test_logs_read_as_ever_beside_loggers_of_pyspark(caplog):
    spark = pytest.importorskip("pyspark.logger").PySparkLogger("a query's")
    spark.addHandler(caplog.handler)        # what pytest does where a logger does not propagate
    try:
        raise KeyError("a defect")
    except KeyError:
        logging.getLogger("gpu_worker.a").exception("a callback failed")
    assert caplog.text.startswith("ERROR ") and "Traceback" in caplog.text
