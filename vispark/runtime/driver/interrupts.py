"""Spark jobs that Ctrl-C ends: the main thread waits for them, and a thread beside it talks to the JVM."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

from py4j.clientserver import ClientServer
from pyspark import SparkContext

from gpu_worker.protocol.system import refused
from vispark.runtime.driver.spark_errors import CALL_FAILED

_Given = TypeVar("_Given")

#: From one look at a job to the next.
_LOOK_SECONDS = 0.5


def interruptibly(context: SparkContext, job: Callable[[], _Given], look: Callable[[], None] | None = None) -> _Given:
    """Run a Spark job, and cancel it if the main thread is interrupted while it waits for it.

    A signal's exception in the middle of a call to the JVM would leave the job running, with the task slots that it
    has; PySpark's own handler cannot cancel it over a connection that is being read, and a notebook's does not try.
    Other threads than the main one get no signals, and run the job themselves. While it runs, the main thread calls
    ``look``, if that is given, from time to time.
    """
    if threading.current_thread() is not threading.main_thread() or not isinstance(context._gateway, ClientServer):
        return job()
    tag, properties = f"vispark-{uuid.uuid4().hex}", context._jsc.sc().getLocalProperties().clone()

    def tagged() -> _Given:
        context._jsc.sc().setLocalProperties(properties)
        context.addJobTag(tag)
        return job()

    pool = ThreadPoolExecutor(1, thread_name_prefix="vispark job")
    try:
        running = pool.submit(tagged)
    except RuntimeError as error:
        raise refused(error, "a thread that runs a Spark job") from error
    finally:
        pool.shutdown(wait=False)
    try:
        while look is not None and not wait([running], _LOOK_SECONDS).done:
            look()
        return running.result()
    finally:
        if not running.done() and not running.cancel():
            # Its tasks end within two seconds, in which the program may go on.
            cancelling = threading.Thread(target=_cancel, args=(context, tag, running), name="vispark job ends",
                                          daemon=True)
            try:
                cancelling.start()
            except RuntimeError:    # There is no further thread: the interrupt is what the program is to see.
                with suppress(*CALL_FAILED):
                    context.cancelJobsWithTag(tag)


def _cancel(context: SparkContext, tag: str, running: Future[_Given]) -> None:
    """Cancel the jobs of a tag until the call that runs them has ended: a job may start behind the first attempt."""
    with suppress(*CALL_FAILED):
        while True:
            context.cancelJobsWithTag(tag)
            if wait([running], _LOOK_SECONDS).done:
                return
