"""Table of the operators by which records are folded: names in Python, NumPy and C++, and what each is of.

Drivers read it to see which functions of two records have kernels, the translator and device processes to write and
launch these, and both to join partial results. Decisions between operators ask for capabilities, never for names. The
C++ side of an operator is a functor in ``vispark/fold.h``.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_worker.protocol.errors import PlanError

#: NumPy's kinds of dtypes.
_INTEGERS, _REALS, _NUMBERS = "iub", "iubf", "iubfc"


@dataclass(frozen=True)
class FoldOperator:
    """Associative operator of two values.

    Attributes
    ----------
    name : str
        What plans call it.
    functor : str
        Its type in ``vispark/fold.h``.
    ufunc : str
        NumPy's function of two arrays.
    function : str
        Python's function of two values, as ``operator.add``, or a builtin, as ``min``.
    in_place : str
        Another function of the same result; empty where there is none.
    symbol : str
        Python's operator; empty where there is none.
    kinds : str
        NumPy's kinds of dtypes that it is of on devices.
    of_bools : str
        The name of the operator that does the same to bools.
    chooses : bool
        Whether it gives one of its two values, so that there is none for no values, and NaN depends on their order.
    may_overflow : bool
        Whether integers leave their type where Python's become larger.
    """

    name: str
    functor: str
    ufunc: str
    function: str
    in_place: str = ""
    symbol: str = ""
    kinds: str = _INTEGERS
    of_bools: str = ""
    chooses: bool = False
    may_overflow: bool = False

    @property
    def is_bitwise(self) -> bool:
        """Whether it is of integers and bools alone."""
        return self.kinds == _INTEGERS


_OPERATORS: dict[str, FoldOperator] = {}


def register(operator: FoldOperator) -> FoldOperator:
    """Add an operator to the table of this process."""
    _OPERATORS[operator.name] = operator
    return operator


def operators() -> list[FoldOperator]:
    """Return all operators, in the order in which they were registered."""
    return list(_OPERATORS.values())


def operator_of(name: str) -> FoldOperator:
    """Return the operator of a name.

    Raises
    ------
    PlanError
        If there is none; the message has the names.

    Examples
    --------
    >>> operator_of("maximum").functor
    'Maximum'
    """
    if name not in _OPERATORS:
        raise PlanError(f"no fold {name!r}; there are {', '.join(_OPERATORS)}")
    return _OPERATORS[name]


def is_known(name: str) -> bool:
    """Return whether there is an operator of a name."""
    return name in _OPERATORS


def of_bools(name: str) -> str:
    """Return the name of the operator that does to bools what this one does to numbers.

    Examples
    --------
    >>> of_bools("add"), of_bools("xor")
    ('or', 'xor')
    """
    return operator_of(name).of_bools or name


register(FoldOperator("add", "Add", "add", "operator.add", "operator.iadd", "+", _NUMBERS, "or", may_overflow=True))
register(FoldOperator("multiply", "Multiply", "multiply", "operator.mul", "operator.imul", "*", _REALS, "and",
                      may_overflow=True))
register(FoldOperator("minimum", "Minimum", "minimum", "min", kinds=_REALS, of_bools="and", chooses=True))
register(FoldOperator("maximum", "Maximum", "maximum", "max", kinds=_REALS, of_bools="or", chooses=True))
register(FoldOperator("and", "And", "bitwise_and", "operator.and_", "operator.iand", "&"))
register(FoldOperator("or", "Or", "bitwise_or", "operator.or_", "operator.ior", "|"))
register(FoldOperator("xor", "Xor", "bitwise_xor", "operator.xor", "operator.ixor", "^"))
