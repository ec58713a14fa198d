"""Logs of workers: bounded whatever peers do, and their owner's alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.system import log


@pytest.fixture
def limited() -> Iterator[tuple[logging.Logger, list[str], list[float]]]:
    """Yield a logger with a rate limit, the lines that it logs, and its clock."""
    lines: list[str] = []
    clock = [0.0]
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(log.RateLimit(lambda: clock[0]))
    logger = logging.getLogger("tests.log")
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    logger.propagate = False
    yield logger, lines, clock
    logger.removeHandler(handler)


def test_a_flood_is_cut_off_and_counted(limited):
    logger, lines, clock = limited

    def refuse(number: int) -> None:
        logger.info("a peer is refused: %s", number)

    for number in range(10_000):
        refuse(number)
    assert len(lines) == log.MOST_LINES
    logger.info("another line of code is heard")
    assert len(lines) == log.MOST_LINES + 1
    clock[0] = log.MINUTE
    refuse(7)
    assert lines[-1] == "a peer is refused: 7 (and 9900 more before, which are not logged)"
    refuse(8)
    assert lines[-1] == "a peer is refused: 8"


def test_messages_for_debugging_all_pass(limited):
    logger, lines, _ = limited
    for number in range(1000):
        logger.debug("%d", number)
    assert len(lines) == 1000


def test_the_worker_s_logs_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    logger = logging.getLogger("gpu_worker")
    monkeypatch.setattr(logger, "handlers", [])
    before = logger.level
    log.to_file(tmp_path / "daemon.log", "info")
    handler, = logger.handlers
    try:
        for _ in range(1000):
            logger.warning("refused")
    finally:
        handler.close()
        logger.setLevel(before)
    assert len((tmp_path / "daemon.log").read_text().splitlines()) == log.MOST_LINES
    assert (tmp_path / "daemon.log").stat().st_mode & 0o777 == 0o600
