"""Binding of calls in one place, by NumPy's and Python's own parameters; what is not taken is told of at the ``vmap``
call.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.golden.harness import record_of
from vispark.translate import TranslationError, specialise, trace
from vispark.translate.codegen import dispatch
from vispark.translate.ir import nodes
from vispark.translate.language import library, registry, signatures


def _object(name: str) -> Any:
    """Return the object that a name of the library stands for."""
    module, _, short = name.rpartition(".")
    there = {"numpy": np, "numpy.linalg": np.linalg, "math": math, "numpy.lib.stride_tricks": np.lib.stride_tricks,
             "functools": functools, "scipy.special": special}.get(module, __builtins__)
    return there[short] if isinstance(there, dict) else getattr(there, short, None)


def _parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]


def _compared() -> list[str]:
    names = {name for name in registry.names() if not name.startswith(("operator.", "grid."))}
    types = {f"numpy.{np.dtype(getattr(np, name)).name}" for name in library.TYPES}
    return sorted(name for name in names - types - {"numpy.einsum", "numpy.pad", "float"} if _theirs(name) is not None)


def _theirs(name: str) -> list[inspect.Parameter] | None:
    """Return the parameters that NumPy and Python have; None where Python does not know them."""
    try:
        return _parameters(inspect.signature(_object(name)))
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", _compared())
def test_parameters_have_the_places_that_they_have_in_numpy(name: str):
    theirs = _theirs(name) or []
    signature, refused = signatures.signature(name)
    ours = _parameters(signature)
    places = [one for one in theirs if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    placed = [one for one in ours if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    assert len(placed) <= len(places) or name == "numpy.gradient"
    for one, other in zip(placed, places, strict=False):
        if other.kind is other.POSITIONAL_OR_KEYWORD or one.kind is one.POSITIONAL_OR_KEYWORD:
            assert one.name == other.name or name == "numpy.gradient"
        assert one.name in refused or one.default is one.empty or other.default is not other.empty
    there = {one.name for one in theirs}
    assert {one.name for one in ours if one.kind is one.KEYWORD_ONLY} <= there
    # A parameter that would be dropped may stand before none that is taken.
    assert [one.name for one in placed] == [one.name for one in places][:len(placed)] or \
        all(one.kind is one.POSITIONAL_ONLY for one in places) or name == "numpy.gradient"


def _lowerings() -> list[tuple[str, Callable[..., Any]]]:
    return [(one.name, one.lowering) for one in registry.functions().values()
            if one.lowering and not isinstance(one.lowering, functools.partial)]


@pytest.mark.parametrize(("name", "lowering"), _lowerings(), ids=lambda one: one if isinstance(one, str) else "")
def test_what_lowers_a_function_has_the_parameters_that_are_taken(name: str, lowering: Callable[..., Any]):
    signature, refused = signatures.signature(name)
    _, *theirs = inspect.signature(lowering).parameters.values()
    taken = [one.name for one in _parameters(signature) if one.name not in refused]
    assert [one.name for one in theirs] == [name for name in taken if name != "keepdims"]   # call_library() keeps axes


def test_every_function_has_what_lowers_it_or_is_written_in_the_language():
    by_syntax = {"range", "enumerate", "zip", "reversed", "tuple", "list", "numpy.einsum"}
    assert {name for name, one in registry.functions().items() if not (one.lowering or one.written)} == by_syntax


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch):
    """Take what a test registers away again."""
    for table in ("_functions", "_names", "_methods", "_variants"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


def test_a_name_is_registered_once(emptied: None):
    with pytest.raises(ValueError, match=r"numpy\.append is registered twice, by vispark\S+\.append and by \S+again"):
        @registry.lowers("numpy.append", "arr values")
        def again(emit, arr, values):
            """Never called."""


def test_an_object_and_a_method_are_registered_once(emptied: None):
    with pytest.raises(ValueError, match=r"numpy\.plus is the same object as numpy\.add"):
        registry.register("numpy.plus", "x1 x2 /", value=np.add)
    with pytest.raises(ValueError, match=r"the method ravel is registered twice, as numpy\.ravel and as numpy\.other"):
        registry.register("numpy.other", "a", method="ravel")


def test_a_node_and_a_call_have_one_lowering():
    with pytest.raises(ValueError, match="If is lowered twice, by lower_if and by"):
        dispatch.lowers_node(nodes.If)(lambda emit, statement, after: True)
    with pytest.raises(ValueError, match=r"calls of numpy\.einsum are lowered twice, by einsum_call and by"):
        dispatch.lowers_call("numpy.einsum")(lambda emit, name, node: None)


def test_every_node_has_a_lowering():
    inside = {"Parameter", "Definition", "Function"}
    kinds = {kind for name, kind in vars(nodes).items() if isinstance(kind, type) and issubclass(kind, nodes.Node)
             and kind not in (nodes.Node, nodes.Expression, nodes.Statement) and name not in inside}
    assert kinds == dispatch._LOWERINGS.keys()


def _from_list(x):
    return [1, 2, 3].index(x)


REFUSED = [
    (_from_list, r"no \.index here; np\.argmax"),
    (lambda x: x.foo, r"no \.foo here;.* there are \.shape"),
    (lambda x: x.sort(), r"no \.sort here"),
    (lambda p: np.add.reduce(p), r"numpy\.add\.reduce is not supported; of the reductions there are np\.sum"),
    (lambda p: np.stack((p, p), axis=1), r"axis of np\.stack is not supported; rows are stacked along axis 0"),
    (lambda p: np.stack((p, p), 1), r"axis of np\.stack is not supported"),
    (lambda p: np.roll(p, 1, axis=0), r"axis of np\.roll is not supported; it is of a row"),
    (lambda p: p.copy("C"), r"order of np\.copy is not supported"),
    (lambda p: p.sum(0, where=True), r"where of np\.sum is not supported; its arguments here are a, axis, dtype"),
    (lambda p: np.quantile(p, 0.5, 0), r"axis of np\.quantile is not supported"),
    (lambda p: np.gradient(p, 2.0), r"varargs of np\.gradient is not supported"),
    (lambda x: np.exp(x, out=x), r"out of np\.exp is not supported; its argument here is x"),
    (lambda x: np.exp(), r"np\.exp needs its argument x"),
    (lambda x: np.add(x), r"np\.add needs its argument x2"),
    (lambda x: math.sqrt(x, 2), r"math\.sqrt takes 1 argument by place, and 2 are given"),
    (lambda p: np.sum(p, a=p), r"np\.sum is given a twice"),
    (lambda p: np.sum(p, size=2), r"np\.sum takes no keyword size; its arguments here are a, axis, dtype, keepdims"),
    (lambda p: sum(p, begin=2), r"sum\(\) takes no keyword begin"),
    (lambda p: any((v for v in p), 1), r"any\(\) takes 1 argument by place, and 2 are given"),
    (lambda p: max(*p, size=2), r"max\(\) takes no keyword size"),
    (lambda p: np.sum(v for v in p), r"a generator cannot be given to np\.sum"),
    (lambda p: p * np.random.rand(), r"np\.random\.rand is not supported: a kernel draws no random numbers"),
    (lambda p: np.cumsumm(p), r"np has no cumsumm; the nearest is np\.cumsum"),
    (lambda p: np.nancumsum(p), r"np\.nancumsum is not among .* lists them; the nearest is np\.nansum"),
    (lambda p: p * np.random.default_rng(), "is not supported|draws no random|not among"),
]


@pytest.mark.parametrize(("fn", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_taken_is_refused_where_vmap_is_called(fn: Callable[..., Any], message: str):
    with pytest.raises(TranslationError, match=message) as caught:
        trace(fn)
    assert caught.value.file == __file__ and caught.value.column
    assert caught.value.line >= fn.__code__.co_firstlineno and "^" in str(caught.value)


def test_an_argument_is_told_of_before_what_the_function_does_with_it():
    with pytest.raises(TranslationError, match="argument 1 is a dict, which a kernel cannot take") as caught:
        trace(lambda p, d: p * d["rate"], ({"rate": 2.0},))
    assert caught.value.file == __file__


def _kept(f):
    return f


@_kept
def _some_ways(x):
    if x > 0:
        return x


@_kept
@_kept
def _without(x, k):
    return x + k


@pytest.mark.parametrize(("fn", "message", "behind"), [(_some_ways, "on some ways", 1), (_without, "parameter k", 2)])
def test_what_is_wrong_with_a_whole_function_is_told_of_at_its_def(fn: Callable[..., Any], message: str, behind: int):
    with pytest.raises(TranslationError, match=re.compile(message)) as caught:
        specialise(trace(fn), record_of(np.float32([1, 2])))
    assert caught.value.line == fn.__code__.co_firstlineno + behind
    assert "    def " in str(caught.value)
