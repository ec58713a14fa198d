"""Frozen dataclasses that cost a process little to define, and a pass of a loop little to make."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    def dataclass(*, frozen: bool, slots: bool) -> Any:
        """Return the decorator of a frozen dataclass with slots, whose methods are written out at its first record.

        The standard library's writes out and compiles six methods of each class at its definition, of which a process
        defines 120 and makes records of a few. Its ``__init__`` goes through ``object.__setattr__`` for each field;
        this one through the slots, in half of the time, and a pass of a loop makes thirty records.

        Examples
        --------
        >>> @dataclass(frozen=True, slots=True)
        ... class Size:
        ...     values: int
        ...     columns: int = 1
        >>> Size(2), Size(2) == Size(2, columns=1)
        (Size(values=2, columns=1), True)
        >>> Size(2).values = 3
        Traceback (most recent call last):
        dataclasses.FrozenInstanceError: cannot assign to field 'values'
        """
        assert frozen and slots
        return _defined


def _defined(of: type) -> Any:
    frozen: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(of)
    assert not hasattr(frozen, "__post_init__") and frozen.__init__ is object.__init__
    assert all(field.init and not field.kw_only and field.default_factory is dataclasses.MISSING
               for field in dataclasses.fields(frozen))

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _write_methods(frozen)
        frozen.__init__(self, *args, **kwargs)

    for name, method in {"__init__": __init__, **_SHARED}.items():
        if name not in frozen.__dict__:
            setattr(frozen, name, method)
    return frozen


def _write_methods(of: Any) -> None:
    """Compile the methods of a class that its records use often, at once."""
    fields = dataclasses.fields(of)
    namespace: dict[str, Any] = {f"default_{field.name}": field.default for field in fields
                                 if field.default is not dataclasses.MISSING}
    namespace |= {f"set_{field.name}": getattr(of, field.name).__set__ for field in fields}
    parameters = [f"{field.name}=default_{field.name}" if f"default_{field.name}" in namespace else field.name
                  for field in fields]
    compared = [field.name for field in fields if field.compare]
    ours, others = (f"({''.join(f'{record}.{name},' for name in compared)})" for record in ("self", "other"))
    exec("\n".join([
        f"def __init__({', '.join(['self', *parameters])}):",
        *[f"    set_{field.name}(self, {field.name})" for field in fields], "    return",
        "def __eq__(self, other):",
        f"    return {ours} == {others} if other.__class__ is self.__class__ else NotImplemented",
        "def __hash__(self):",
        f"    return hash({ours})"]), namespace)
    for name in ("__eq__", "__hash__", "__init__"):
        if name == "__init__" or name not in of.__dict__:
            setattr(of, name, namespace[name])


def _repr(record: Any) -> str:
    fields = [f"{field.name}={getattr(record, field.name)!r}" for field in dataclasses.fields(record) if field.repr]
    return f"{type(record).__qualname__}({', '.join(fields)})"


def _refuse_assignment(record: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(record: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(record: Any) -> tuple[Any, ...]:
    return type(record), tuple(getattr(record, field.name) for field in dataclasses.fields(record))


#: Methods that are the same of all classes.
_SHARED = {"__repr__": _repr, "__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion, "__reduce__": _reduce}
