"""State of our loggers that a test may change, and has to put back."""

from __future__ import annotations

import logging

_OURS = ("gpu_worker", "vispark")


def state() -> dict[str, tuple]:
    """Return the settings that decide whether and where our loggers' messages are heard, by logger."""
    manager = logging.root.manager
    settings: dict[str, tuple] = {"logging.disable": (manager.disable,), "root": (logging.root.level,)}
    for name, logger in manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _OURS:
            settings[name] = (logger.level, logger.propagate, logger.disabled, tuple(map(id, logger.handlers)),
                              tuple(map(id, logger.filters)), _stale(logger))
    return settings


def changed(before: dict[str, tuple]) -> list[str]:
    """Return the differences from an earlier :func:`state`, one entry a logger; a new logger has to be a fresh one."""
    fresh = (logging.NOTSET, True, False, (), (), False)
    return [f"{name}: {before.get(name, fresh)} became {now}"
            for name, now in state().items() if now != before.get(name, fresh)]


def _stale(logger: logging.Logger) -> bool:
    """Return whether a logger remembers an answer to ``isEnabledFor`` that holds no more.

    It does where something was assigned to (``manager.disable``, ``level``) for which there is a function that has
    loggers forget.
    """
    disabled = logger.manager.disable
    return any(enabled != (disabled < level and level >= logger.getEffectiveLevel())
               for level, enabled in logger._cache.items())
