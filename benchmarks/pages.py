"""What a loop's speed costs that somebody watches: with the page of its node open, and without, in turn.

    python -m benchmarks.pages [SECONDS]

A viewer takes the events of a dashboard that asks the daemon once a second; a browser would do the same, and draw.
"""

from __future__ import annotations

import http.client
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import vispark
from benchmarks.session import context, environment
from gpu_worker.monitor.dashboard import Dashboard
from gpu_worker.system.paths import VARIABLE, locate
from gpu_worker.web import server

#: Seconds of a sample: several requests of the dashboard's.
SAMPLE_SECONDS = 3.0


@contextmanager
def watched(runtime_dir: str) -> Iterator[None]:
    """Have a viewer follow the dashboard of a node during the block."""
    sock = server.listen("127.0.0.1", 0)
    host, port = sock.getsockname()
    shown = Dashboard(locate(runtime_dir), sock)
    serving = threading.Thread(target=shown.run)
    serving.start()
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {shown.access.secret}"})
    viewing = threading.Thread(target=_follow, args=(connection.getresponse(),))
    viewing.start()
    try:
        yield
    finally:
        shown.stop()
        serving.join()
        viewing.join()
        connection.close()


def _follow(stream: http.client.HTTPResponse) -> None:
    while stream.readline():
        pass


def rate(rows: vispark.VRDD) -> float:
    """Return how many actions a loop does in a second."""
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < SAMPLE_SECONDS:
        rows.vmap(lambda row: row * row).sum()
        done += 1
    return done / (time.perf_counter() - began)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with environment(), context("host", 2) as sc:
        rows = sc.parallelize(list(np.ones((20_000, 2), "f4")), 2).cache("GPU")
        rows.count()
        rate(rows)
        with_page, without = [], []
        for _ in range(max(2, int(seconds / SAMPLE_SECONDS / 2))):
            without.append(rate(rows))
            with watched(os.environ[VARIABLE]):
                with_page.append(rate(rows))
        cost = statistics.median(1 - one / two for one, two in zip(with_page, without, strict=True))
        print(f"without: {statistics.median(without):.1f} actions a second; with the page: "
              f"{statistics.median(with_page):.1f}; costs {100 * cost:.1f} % (median of {len(with_page)} pairs)")


if __name__ == "__main__":
    main()
