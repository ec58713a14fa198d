"""Cached hashes of the frozen records that are keys of the plan cache, which a loop asks in every pass."""

from __future__ import annotations

from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def hashed_once(of: _Class) -> _Class:
    """Cache the hash of a frozen dataclass's records, which is computed from all of their fields otherwise.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @hashed_once
    ... @dataclass(frozen=True)
    ... class Name:
    ...     parts: tuple[str, ...]
    >>> hash(Name(("a", "b"))) == hash(Name(("a", "b")))
    True
    """
    whole: Any = of.__hash__

    def once(self: Any) -> int:
        value = self.__dict__.get("_hash")
        if value is None:
            value = self.__dict__["_hash"] = whole(self)
        return int(value)

    def state(self: Any) -> dict[str, Any]:
        # Strings are hashed differently by each process.
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    setattr(of, "__hash__", once)           # noqa: B010 - mypy lets nobody assign to a class's methods
    setattr(of, "__getstate__", state)      # noqa: B010
    return of
