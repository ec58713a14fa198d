"""The parameters of the library's functions, and the one place where a call's arguments are bound to them.

What a call gives is taken, or refused with its name: nothing can be dropped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.language import composed, registry

#: Functions of Python that a generator is given to.
TAKES_GENERATORS = ("sum", "math.fsum", "min", "max", "tuple", "list", "any", "all", "sorted")

@functools.cache
def signature(name: str) -> tuple[inspect.Signature, frozenset[str]]:
    """Return the signature of one of the library's functions, and which of its parameters are refused.

    Examples
    --------
    >>> signature("numpy.round")
    (<Signature (a, decimals=None, out=None)>, frozenset({'out'}))
    """
    parameters: list[inspect.Parameter] = []
    refused = set()
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    entry = registry.function(name)
    for word in (entry.parameters if entry else "x /").split():
        if word == "/":
            parameters = [one.replace(kind=inspect.Parameter.POSITIONAL_ONLY) for one in parameters]
        elif word == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif word[0] == "*":
            parameters.append(inspect.Parameter(word[1:], inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            plain = word.rstrip("=!")
            refused |= {plain} if word[-1] == "!" else set()
            default = inspect.Parameter.empty if plain == word else None
            parameters.append(inspect.Parameter(plain, kind, default=default))
    return inspect.Signature(parameters), frozenset(refused)


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
    declared, refused = signature(name)
    parameters = declared.parameters
    by_place = [one for one in parameters.values() if one.kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)]
    many = any(one.kind == one.VAR_POSITIONAL for one in parameters.values())
    if len(arguments) > len(by_place) and not many:
        raise Refusal(f"{shown(name)} takes {_counted(len(by_place))} by place, and {len(arguments)} are given; "
                      f"{_taken(name)}")
    positional = [one.name for one in by_place[:len(arguments)]]
    for key in (*(key for key in positional if key in refused), *keywords):
        if key in positional and key in keywords:
            raise Refusal(f"{shown(name)} is given {key} twice")
        _check_keyword(name, key)
    for one in by_place:
        if one.default is one.empty and one.name not in positional and one.name not in keywords:
            raise Refusal(f"{shown(name)} needs its argument {one.name}; {_taken(name)}")
    bound = declared.bind(*arguments, **keywords)
    return bound.args, bound.kwargs


def _check_keyword(name: str, key: str) -> None:
    declared, refused = signature(name)
    one = declared.parameters.get(key)
    if one is None or one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
        raise Refusal(f"{shown(name)} takes no keyword {key}; {_taken(name)}")
    if key in refused:
        raise Refusal(f"{key} of {shown(name)} is not supported; {_instead(name, key) or _taken(name)}")


def _instead(name: str, parameter: str) -> str:
    entry = registry.function(name)
    return entry.instead.get(parameter, "") if entry else ""


def shown(name: str) -> str:
    """Return a function's name as users write it."""
    module, _, short = name.partition(".")
    if module == "numpy":
        return f"np.{short}"
    return name if short and module != "grid" else f"{short or name}()"


def _taken(name: str) -> str:
    declared, refused = signature(name)
    names = [("*" if one.kind == one.VAR_POSITIONAL else "") + one.name for one in declared.parameters.values()
             if one.name not in refused]
    return f"its arguments here are {', '.join(names)}" if len(names) > 1 else f"its argument here is {''.join(names)}"


def _counted(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def check(function: nodes.Expression, arguments: Sequence[nodes.Expression], keywords: Mapping[str, Any]) -> None:
    """Bind the arguments of a call as it is written, if it is one of the library's functions or methods.

    Raises
    ------
    Refusal
        As :func:`bind`.
    """
    name, values = "", list[Any](arguments)
    if isinstance(function, nodes.Library):
        name = function.name
    elif isinstance(function, nodes.Attribute):
        if function.name not in registry.methods():
            raise Refusal(f".{function.name} is not called; write it without parentheses")
        name, values = registry.methods()[function.name], [function.value, *values]
    elif isinstance(function, nodes.Called) and function.definition.text.file == composed.__file__:
        name = next(one.name for one in registry.functions().values()
                    if one.written and one.written.__name__ == function.definition.name)
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
        bind(name, values, keywords)
