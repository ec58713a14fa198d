"""The parameters of the library's functions, and the one place where a call's arguments are bound to them.

What a call gives is taken, or refused with its name: nothing can be dropped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.language import composed
from vispark.translate.language.library import MATH, METHODS, OPERATORS, UFUNC_C, UFUNC_OTHER

_EXTREME = "a axis= out! keepdims= initial! where!"
_TRUTH = "a axis= out! keepdims= * where!"
_PLACE = "a axis= out! * keepdims="
_SPREAD = "a axis= dtype= out! ddof= keepdims= * where! mean! correction!"
_SUM = "a axis= dtype= out! keepdims= initial! where!"
_NEW = "shape dtype= order!"
_LIKE = "a dtype= order! subok! shape!"
_ORDER = "a q axis! out! overwrite_input! method! keepdims!"

#: Parameters in their order: ``=`` has a default, ``!`` is refused, ``/`` and ``*`` as in Python.
WRITTEN = {
    "abs": "x /", "min": "*values key= default=", "max": "*values key= default=", "sum": "iterable / start=",
    "len": "obj /", "int": "x / base!", "float": "x /", "bool": "x /", "complex": "real imag=",
    "round": "number ndigits=", "pow": "base exp mod!", "divmod": "x y /", "enumerate": "iterable start=",
    "zip": "*iterables strict=", "range": "*bounds", "any": "iterable /", "all": "iterable /",
    "tuple": "iterable= /", "list": "iterable= /",
    "reversed": "sequence /", "sorted": "iterable / * key! reverse=",
    "functools.reduce": "function sequence initial= /",
    "math.atan2": "y x /", "math.pow": "x y /", "math.fmod": "x y /", "math.copysign": "x y /",
    "math.remainder": "x y /", "math.hypot": "*coordinates", "math.log": "x base= /",
    "math.prod": "iterable / * start=", "math.dist": "p q /", "math.isclose": "a b * rel_tol= abs_tol=",
    "math.gcd": "*integers", "math.lcm": "*integers", "math.comb": "n k /", "math.isqrt": "n /",
    "math.factorial": "x /",
    "grid.coordinate": "axis", "grid.extent": "axis",
    "numpy.dot": "a b out!", "numpy.sum": _SUM, "numpy.prod": _SUM, "numpy.argmin": _PLACE, "numpy.argmax": _PLACE,
    "numpy.mean": "a axis= dtype= out! keepdims= * where!", "numpy.min": _EXTREME, "numpy.max": _EXTREME,
    "numpy.any": _TRUTH, "numpy.all": _TRUTH, "numpy.where": "condition x y /",
    "numpy.clip": "a a_min= a_max= out! * min= max=", "numpy.zeros": _NEW, "numpy.ones": _NEW, "numpy.empty": _NEW,
    "numpy.full": "shape fill_value dtype= order!", "numpy.array": "object dtype=", "numpy.asarray": "a dtype= order!",
    "numpy.zeros_like": _LIKE, "numpy.ones_like": _LIKE, "numpy.copy": "a order! subok!", "numpy.real": "val",
    "numpy.imag": "val", "numpy.inner": "a b /", "numpy.vdot": "a b /", "numpy.outer": "a b out!",
    "numpy.matmul": "x1 x2 / out!", "numpy.arange": "start_or_stop / stop= step= * dtype=",
    "numpy.transpose": "a axes!", "numpy.var": _SPREAD, "numpy.std": _SPREAD, "numpy.cumsum": "a axis= dtype= out!",
    "numpy.cumprod": "a axis= dtype= out!", "numpy.diff": "a n! axis! prepend! append!",
    "numpy.ptp": "a axis= out! keepdims=", "numpy.count_nonzero": "a axis= * keepdims=", "numpy.polyval": "p x",
    "numpy.linspace": "start stop num= endpoint! retstep! dtype! axis!", "numpy.eye": "N M= k= dtype= order!",
    "numpy.identity": "n dtype=", "numpy.full_like": "a fill_value dtype= order! subok! shape!",
    "numpy.empty_like": "prototype / dtype= order! subok! shape!",
    "numpy.concatenate": "arrays / axis= out! * dtype! casting!", "numpy.hstack": "tup * dtype! casting!",
    "numpy.vstack": "tup * dtype! casting!", "numpy.stack": "arrays axis! out! * dtype! casting!",
    "numpy.append": "arr values axis!", "numpy.flip": "m axis=", "numpy.roll": "a shift axis!",
    "numpy.reshape": "a / shape order! * copy!", "numpy.ravel": "a order!",
    "numpy.trace": "a offset! axis1! axis2! dtype! out!", "numpy.cross": "a b axisa! axisb! axisc! axis!",
    "numpy.angle": "z deg!", "numpy.isclose": "a b rtol= atol= equal_nan!",
    "numpy.allclose": "a b rtol= atol= equal_nan!", "numpy.round": "a decimals= out!",
    "numpy.around": "a decimals= out!", "numpy.sort": "a axis= kind! order! * stable!",
    "numpy.argsort": "a axis! kind! order! * stable!", "numpy.median": "a axis= out! overwrite_input! keepdims=",
    "numpy.searchsorted": "a v side! sorter!", "numpy.digitize": "x bins right!",
    "numpy.interp": "x xp fp left= right= period!", "numpy.einsum": "*operands out! optimize!",
    "numpy.nansum": "a axis= dtype! out! keepdims= initial! where!", "numpy.nanmin": _EXTREME, "numpy.nanmax": _EXTREME,
    "numpy.nanmean": "a axis= dtype! out! keepdims= * where!", "numpy.squeeze": "a axis!",
    "numpy.expand_dims": "a axis", "numpy.trapezoid": "y x= dx= axis!",
    "numpy.gradient": "f varargs! axis! edge_order!", "numpy.select": "condlist choicelist default=",
    "numpy.quantile": _ORDER, "numpy.percentile": _ORDER, "numpy.tril": "m k=", "numpy.triu": "m k=",
    "numpy.diag": "v k!", "numpy.linalg.norm": "x ord= axis= keepdims=",
    "numpy.repeat": "a repeats axis=", "numpy.tile": "A reps",
    "numpy.pad": "array pad_width mode= * constant_values=", "numpy.convolve": "a v mode=",
    "numpy.lib.stride_tricks.sliding_window_view": "x window_shape axis! * subok! writeable!",
    "numpy.modf": "x /", "numpy.frexp": "x /", "numpy.divmod": "x1 x2 /",
    "math.ldexp": "x i /", "math.modf": "x /", "math.frexp": "x /", "math.nextafter": "x y /",
    "math.perm": "n k= /", "math.fsum": "seq /", "math.ulp": "x /",
    "numpy.average": "a axis= weights= returned! * keepdims!", 
    "numpy.isin": "element test_elements assume_unique! invert! * kind!",
    "numpy.nanvar": "a axis= dtype! out! ddof= keepdims! * where! mean! correction!",
    "numpy.nanstd": "a axis= dtype! out! ddof= keepdims! * where! mean! correction!",
    "numpy.column_stack": "tup", "numpy.ediff1d": "ary to_end= to_begin=",
    "numpy.unwrap": "p discont= axis! * period=", "numpy.vecdot": "x1 x2 /", "numpy.matvec": "x1 x2 /",
    "numpy.vecmat": "x1 x2 /",
    # Methods whose parameters are not those of NumPy's function of that name.
    "astype": "value dtype order! casting! subok! copy!", "item": "value", "flatten": "value order!",
    "clip": "value min= max= out!", "reshape": "value *shape order! copy!",
}

#: Functions of Python that a generator is given to.
TAKES_GENERATORS = ("sum", "math.fsum", "min", "max", "tuple", "list", "any", "all")

#: What to write in place of a parameter that is refused.
_INSTEAD = {
    ("sorted", "key"): "take the items at the places that np.argsort gives, as in p[np.argsort(np.abs(p))]",
    ("numpy.roll", "axis"): "it is of a row",
    ("numpy.stack", "axis"): "rows are stacked along axis 0; .T of that has them along axis 1",
    ("numpy.append", "axis"): "use np.concatenate",
    ("numpy.linspace", "endpoint"): "write start + np.arange(n) * step",
    ("numpy.linspace", "dtype"): "write .astype() behind it",
    ("numpy.diff", "n"): "write np.diff(np.diff(p))",
    ("numpy.searchsorted", "side"): "np.digitize counts equal numbers too",
    ("numpy.digitize", "right"): "np.searchsorted does not count equal numbers",
    ("numpy.angle", "deg"): "write np.rad2deg(np.angle(z))",
    ("numpy.diag", "k"): "write p[i, i + k] in a comprehension",
    ("numpy.nansum", "dtype"): "write .astype() before it",
    ("numpy.nanmean", "dtype"): "write .astype() before it",
    ("pow", "mod"): "write x ** n % m",
    ("numpy.transpose", "axes"): "the axes are turned round",
}


@functools.cache
def signature(name: str) -> tuple[inspect.Signature, frozenset[str]]:
    """Return the signature of one of the library's functions, and which of its parameters are refused.

    Examples
    --------
    >>> signature("numpy.round")
    (<Signature (a, decimals=None, out=None)>, frozenset({'out'}))
    """
    found: list[inspect.Parameter] = []
    refused = set()
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for word in _written(name).split():
        if word == "/":
            found = [one.replace(kind=inspect.Parameter.POSITIONAL_ONLY) for one in found]
        elif word == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif word[0] == "*":
            found.append(inspect.Parameter(word[1:], inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            plain = word.rstrip("=!")
            refused |= {plain} if word[-1] == "!" else set()
            default = inspect.Parameter.empty if plain == word else None
            found.append(inspect.Parameter(plain, kind, default=default))
    return inspect.Signature(found), frozenset(refused)


def _written(name: str) -> str:
    module, _, short = name.rpartition(".")
    if name in WRITTEN:
        return WRITTEN[name]
    if module == "operator":
        return "a /" if OPERATORS[short] in ("not", "~") or short in ("neg", "pos") else "a b /"
    if module == "numpy" and short in (*UFUNC_C, *UFUNC_OTHER):
        return ("x /" if getattr(np, short).nin == 1 else "x1 x2 /") + \
            " out! * where! casting! order! dtype! subok!"
    if module == "math" and short in MATH:
        return "x /"
    return "x /"


def bind(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments in the order of the function's parameters.

    Returns
    -------
    tuple, dict
        Those before the first parameter that is not given, and those behind it.

    Raises
    ------
    Refusal
        If one is missing, or is not taken.

    Examples
    --------
    >>> bind("numpy.std", ["p"], {"ddof": 1, "axis": 0})
    (('p', 0), {'ddof': 1})
    """
    found, refused = signature(name)
    parameters = found.parameters
    by_place = [one for one in parameters.values() if one.kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)]
    many = any(one.kind == one.VAR_POSITIONAL for one in parameters.values())
    if len(arguments) > len(by_place) and not many:
        raise Refusal(f"{shown(name)} takes {_counted(len(by_place))} by place, and {len(arguments)} are given; "
                      f"{_taken(name)}")
    given = [one.name for one in by_place[:len(arguments)]]
    for key in (*(key for key in given if key in refused), *keywords):
        if key in given and key in keywords:
            raise Refusal(f"{shown(name)} is given {key} twice")
        _check_keyword(name, key)
    for one in by_place:
        if one.default is one.empty and one.name not in given and one.name not in keywords:
            raise Refusal(f"{shown(name)} needs its argument {one.name}; {_taken(name)}")
    bound = found.bind(*arguments, **keywords)
    return bound.args, bound.kwargs


def _check_keyword(name: str, key: str) -> None:
    found, refused = signature(name)
    one = found.parameters.get(key)
    if one is None or one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
        raise Refusal(f"{shown(name)} takes no keyword {key}; {_taken(name)}")
    if key in refused:
        raise Refusal(f"{key} of {shown(name)} is not supported; {_INSTEAD.get((name, key)) or _taken(name)}")


def shown(name: str) -> str:
    """Return a function's name as users write it."""
    module, _, short = name.partition(".")
    if module == "numpy":
        return f"np.{short}"
    return name if short and module != "grid" else f"{short or name}()"


def _taken(name: str) -> str:
    found, refused = signature(name)
    names = [("*" if one.kind == one.VAR_POSITIONAL else "") + one.name for one in found.parameters.values()
             if one.name not in refused]
    return f"it takes {', '.join(names)} here"


def _counted(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def check(function: nodes.Expression, arguments: Sequence[nodes.Expression], keywords: Mapping[str, Any]) -> None:
    """Binds the arguments of a call as it is written, if it is one of the library's functions or methods.

    Raises
    ------
    Refusal
        As :func:`bind`.
    """
    name, given = "", list[Any](arguments)
    if isinstance(function, nodes.Library):
        name = function.name
    elif isinstance(function, nodes.Attribute):
        if function.name not in METHODS:
            raise Refusal(f".{function.name} is not called; write it without parentheses")
        name, given = METHODS[function.name], [function.value, *given]
    elif isinstance(function, nodes.Called) and function.definition.text.file == composed.__file__:
        short = function.definition.name
        module = "numpy" if short in composed.NUMPY else "math" if short in composed.MATH else "functools"
        name = f"{module}.{short}"
    for one in arguments:
        if isinstance(one, nodes.Each) and name not in TAKES_GENERATORS:
            raise Refusal(f"a generator cannot be given to {shown(name) if name else 'a function'}; it can be to "
                          f"{', '.join(TAKES_GENERATORS[:-1])} and {TAKES_GENERATORS[-1]}")
    if not name:
        return
    if any(isinstance(one, nodes.Spread) for one in arguments):
        for key in keywords:
            _check_keyword(name, key)
    else:
        bind(name, given, keywords)
