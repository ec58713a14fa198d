"""Whole numbers of a function of a record that leave 64 bits: Python's go on there, and the device's do not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vispark.migrate.rules.functions import OF_THE_USER

#: Says why a function with such numbers is not for the device.
LEAVES = ("its whole numbers leave 64 bits for records of this run, where Python's go on and the device's do not: "
          "compute in floats, or take remainders before")
_BINARY = ("add", "sub", "mul", "pow", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor")
_UNARY = ("neg", "pos", "abs", "invert")
_RANGE = range(-2 ** 63, 2 ** 63)


class _LeavesError(OverflowError):
    """A whole number left 64 bits."""


class _Checked(int):
    """Whole number whose results are whole numbers of 64 bits."""


def _checked(value: Any) -> Any:
    if type(value) is int:
        if value not in _RANGE:
            raise _LeavesError
        return _Checked(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_checked, value))
    return {key: _checked(each) for key, each in value.items()} if type(value) is dict else value


def _of_plain(function: Callable[..., Any], is_reflected: bool = False) -> Callable[..., Any]:
    def computed(self: int, *others: Any) -> Any:
        if not all(isinstance(each, int) for each in others):
            return NotImplemented
        values = [int(self), *(int(each) for each in others)]
        return _checked(function(*(reversed(values) if is_reflected else values)))
    return computed


for _name in _BINARY:
    _function = pow if _name == "pow" else getattr(operator, f"__{_name}__")
    setattr(_Checked, f"__{_name}__", _of_plain(_function))
    setattr(_Checked, f"__r{_name}__", _of_plain(_function, True))
for _name in _UNARY:
    setattr(_Checked, f"__{_name}__", _of_plain(getattr(operator, f"__{_name}__")))


def leave_64_bits(functions: Sequence[tuple[Callable[..., Any], str]], records: Iterable[Any]) -> bool:
    """Return whether whole numbers of a chain of functions leave 64 bits for some records.

    Parameters
    ----------
    functions : sequence of (function, of)
        Of the chain, from the first on; ``of`` is "value" where a function is of pairs' values.
    records : iterable
        Records that the first one is of. NumPy's whole numbers are left out: they do as the device's.

    Examples
    --------
    >>> leave_64_bits([(lambda x: (x * 2 ** 62) % 7, "")], [1, 2]), leave_64_bits([(lambda x: x * 2 ** 61, "")], [1, 2])
    (True, False)
    """
    try:
        for record in records:
            value = _checked(record)
            for function, of in functions:
                value = (value[0], function(value[1])) if of == "value" else function(value)
    except _LeavesError:
        return True
    except OF_THE_USER:
        return False
    return False
