"""Reader of Python functions into the intermediate form; what the language lacks is an error at the user's line."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from vispark.translate.frontend import checks
from vispark.translate.frontend import guards as recipe
from vispark.translate.frontend.arguments import constants, defaults, of_decorated, spelled
from vispark.translate.frontend.capture import (
    Referable,
    Unbound,
    constant,
    is_named_tuple,
    is_taken_apart,
    lookup,
)
from vispark.translate.frontend.guards import Recipe, Recipes
from vispark.translate.frontend.offset_loops import NotKnown, is_known, unrolled
from vispark.translate.frontend.walrus import spelled_out
from vispark.translate.ir import nodes as form
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.liveness import leaves
from vispark.translate.ir.nodes import Definition, Expression, Function, Parameter
from vispark.translate.ir.source_text import (
    FunctionNode,
    bound_names,
    complain,
    find,
    heading,
    label_of,
    place,
    starred,
)
from vispark.translate.language import library, registry, signatures
from vispark.translate.language.stencil import Stencil, halo_of
from vispark.translate.language.unsupported import (
    BINARY,
    COMPARE,
    LACKING,
    METHODS_WITH_EFFECT,
    PYTHON_NUMBERS,
    UNARY,
    attribute_lacks,
    did_you_mean,
    unbound,
    why_not,
)


def trace(fn: Callable[..., Any], args: tuple[Any, ...] = ()) -> Function:
    """Read a plain Python function into the intermediate form.

    Parameters
    ----------
    fn : callable
        A function, a lambda or a closure; what it captured and the functions it calls are taken by value, now.
    args : tuple
        The arguments that follow the element: numbers, NumPy arrays and lists of these.

    Returns
    -------
    Function

    Raises
    ------
    TranslationError
        If the source is not to be found, or uses what the language lacks; at the user's line.

    Examples
    --------
    >>> def scaled(x, k):
    ...     return k * x
    >>> trace(scaled, (2.0,)).definition.parameters
    (Parameter(name='x'), Parameter(name='k'))
    """
    return trace_call(fn, args)[0]


_recipes = Recipes()


def trace_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Function, tuple[form.Constant, ...]]:
    """Trace a function as :func:`trace` does; return the result and the arguments by value."""
    fn = called(fn, args)
    if (recipe := _recipes.known(fn)) is None:
        pool = _Pool()
        try:
            definition = pool.read(fn, 0)
            checks.check(definition)
        except TranslationError:
            constants(args, None, fn)
            raise
        _recipes.keep(fn, definition, pool.recipe)
        recipe = definition, tuple(pool.captures)
    function = Function(*recipe)
    return function, _by_value(function.definition, args)


def called(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a function of Python's that calls one of a library, which has no source; other functions as they are."""
    if isinstance(fn, types.FunctionType) or not registry.is_of_library(fn):
        return fn
    if not args:
        return lambda x: fn(x)
    if len(args) == 1:
        return lambda x, y: fn(x, y)
    return lambda x, y, z: fn(x, y, z)


def _by_value(definition: Definition, args: tuple[Any, ...]) -> tuple[form.Constant, ...]:
    at, most = definition.at, definition.taken
    if most is not None and len(args) >= max(1, most):
        raise complain(f"{definition.name} takes {most} parameters, the element and {max(0, most - 1)} "
                       f"arguments; {len(args)} arguments were given", at, definition.text, definition.name)
    return constants(args, definition)


@dataclass
class _Pool:
    """State shared by a function and the functions that it calls: captures, and functions that were read.

    Objects from around them are numbered by the recipe's lookups.
    """

    captures: list[form.Capture] = field(default_factory=list)
    known: dict[int, tuple[Definition, object, int]] = field(default_factory=dict)
    reading: list[types.CodeType] = field(default_factory=list)
    #: Whether a stencil is read: loops over offsets are unrolled then.
    is_stencil: bool = False
    recipe: Recipe = field(default_factory=Recipe)
    _numbers: dict[int, int] = field(default_factory=dict)

    def number(self, name: str, value: form.Constant, found_at: int) -> int:
        """Return the number of the capture that a lookup found."""
        if found_at not in self._numbers:
            self.recipe.expect_number(found_at, name)
            self._numbers[found_at] = len(self.captures)
            self.captures.append(form.Capture(name, value))
        return self._numbers[found_at]

    def read(self, fn: Any, found_at: int) -> Definition:
        """Return a function object, which a lookup found, as a definition."""
        if id(fn) not in self.known:
            self.known[id(fn)] = self._read(fn, found_at), fn, found_at
        definition, _, before = self.known[id(fn)]
        self.recipe.expect_same(found_at, before)
        return definition

    def _read(self, fn: Any, found_at: int) -> Definition:
        if isinstance(fn, functools.partial):
            return self._partial(fn, found_at)
        if isinstance(fn, Stencil):
            self.recipe.expect_kind(found_at, fn)
            self.is_stencil = True
            return halo_of(self.read(fn.function, self.recipe.follow(found_at, getattr, "function")))
        if isinstance(fn, functools._lru_cache_wrapper):
            self.recipe.expect_kind(found_at, fn)
            return self.read(fn.__wrapped__, self.recipe.follow(found_at, getattr, "__wrapped__"))
        if isinstance(fn, types.MethodType):
            return self._method(fn, found_at)
        inner = recipe.wrapped_attribute(fn)
        if inner:
            self.recipe.expect_kind(found_at, fn)
            return self.read(getattr(fn, inner), self.recipe.follow(found_at, getattr, inner))
        if not isinstance(fn, types.FunctionType):
            raise TranslationError(f"{fn!r} cannot be translated: it is of type {type(fn).__name__}, not a function "
                                   "written in Python")
        self.recipe.expect_function(found_at, fn)
        node, text = find(fn)
        self.reading.append(fn.__code__)
        reader = _Reader(self, fn, text, label_of(node), number=found_at)
        try:
            definition = reader.definition(node, defaults=defaults(fn))
        except TranslationError as error:
            raise of_decorated(fn, error) from error
        self.reading.pop()
        return definition

    def _method(self, fn: types.MethodType, found_at: int) -> Definition:
        """Return the method's function, in which its first parameter stands for the object."""
        self.recipe.expect_kind(found_at, fn)
        function, number = fn.__func__, self.recipe.follow(found_at, getattr, "__func__")
        if not isinstance(function, types.FunctionType):
            return self.read(function, number)
        self.recipe.expect_function(number, function)
        node, text = find(function)
        self.reading.append(function.__code__)
        reader = _Reader(self, function, text, label_of(node), number=number)
        reader.owner = fn.__self__, self.recipe.follow(found_at, getattr, "__self__")
        definition = reader.definition(node, defaults=defaults(function))
        self.reading.pop()
        return definition

    def _partial(self, fn: functools.partial[Any], found_at: int) -> Definition:
        """Return the bound arguments become the body's first assignments."""
        self.recipe.expect_partial(found_at, fn)
        inner = self.read(fn.func, self.recipe.follow(found_at, getattr, "func"))
        positional = [parameter.name for parameter in inner.parameters if not parameter.keyword_only]
        keys = dict(zip(positional, range(len(fn.args)), strict=False)) | {name: name for name in fn.keywords}
        reader = _Reader(self, None, inner.text, inner.name)
        here = inner.at
        unknown = set(keys) - {parameter.name for parameter in inner.parameters if not parameter.many}
        if unknown or len(fn.args) > len(positional):
            what = f"{unknown.pop()}, which it has no parameter for" if unknown else \
                f"{len(fn.args)} arguments, and it takes {len(positional)} by position"
            raise complain(f"functools.partial gives {inner.name} {what}", here, inner.text, inner.name)
        start = tuple(form.Assign((form.Local(name),), reader._function(reader.static(
            recipe.bound_argument(fn, key), name, here,
            self.recipe.follow(found_at, recipe.bound_argument, key)), here))
            for name, key in keys.items())
        others = tuple(parameter for parameter in inner.parameters if parameter.name not in keys)
        return Definition(inner.name, others, (*start, *inner.body), inner.free, inner.halo, inner.text, inner.at)


#: What takes a string that is no dtype's name.
_OF_STRINGS = tuple(map(form.Library, ("numpy.linalg.norm", "numpy.einsum", "numpy.pad", "numpy.convolve", "numpy.sort",
                                       "numpy.argsort")))


@dataclass(frozen=True)
class _Outside(Expression):
    """An object from around the function that may only have attributes read: a module, an instance."""

    value: Any = None
    name: str = ""
    found: int = 0


class _Reader:
    """Reader of one function; one method per kind of syntax node."""

    def __init__(self, pool: _Pool, function: types.FunctionType | None, text: form.SourceText, name: str,
                 outer: _Reader | None = None, number: int = 0):
        self.pool, self.function, self.text, self.name, self.outer = pool, function, text, name, outer
        self.number = number
        #: What the first parameter of a method stands for, and the lookup that found it.
        self.owner: tuple[Any, int] | None = None
        #: The parameter with **, which nothing is ever in.
        self.rest = ""
        self.locals: set[str] = set()
        self.free: set[str] = set()

    # -- functions ----------------------------------------------------------------------------------------------------

    def definition(self, node: FunctionNode, defaults: dict[str, Any] | None) -> Definition:
        """Return a function; ``defaults`` are values, or None to read them as expressions of the enclosing function."""
        if isinstance(node, ast.AsyncFunctionDef):
            raise self.error(node, LACKING[ast.AsyncFunctionDef])
        self.rest = node.args.kwarg.arg if node.args.kwarg else ""
        if self.pool.is_stencil and self.outer is None and self.function is not None:
            node = self._with_offsets(node, self.function)
        self.locals = bound_names(node)
        parameters = self._parameters(node, defaults)
        if self.owner is not None:
            self.locals -= {parameters[0].name}
            self.owned, parameters = parameters[0].name, parameters[1:]
        if isinstance(node, ast.Lambda):
            body = self.block([ast.copy_location(ast.Return(node.body), node.body)])
        else:
            body = self.block(node.body)
        self._check_stores(node, {parameter.name for parameter in parameters})
        return Definition(self.name, parameters, body, tuple(sorted(self.free)), None, self.text, heading(node))

    def _with_offsets(self, node: FunctionNode, function: types.FunctionType) -> FunctionNode:
        """Return a function whose loops over offsets are unrolled; what these were read from is not to change."""
        bound = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        bound |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}

        def value(name: str) -> Any:
            try:
                value = None if name in bound else lookup(function, name)
            except Unbound:
                value = None
            if not is_known(value):
                raise NotKnown
            return value

        node, used = unrolled(node, value)
        for name in used:
            self.pool.recipe.fix(self.pool.recipe.name(function, self.number, name), value(name))
        return node

    def _parameters(self, node: FunctionNode, defaults: dict[str, Any] | None) -> tuple[Parameter, ...]:
        positional = [*node.args.posonlyargs, *node.args.args]
        written = dict(zip([one.arg for one in reversed(positional)], reversed(node.args.defaults), strict=False))
        written |= {one.arg: default for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                    if default is not None}
        parameters = []
        for one in [*positional, *starred(node), *node.args.kwonlyargs]:
            default = None
            if one is node.args.vararg:
                parameters.append(Parameter(one.arg, form.TupleOf(()), True, True))
                continue
            if one.arg in written:
                if defaults is None:
                    assert self.outer is not None
                    default = self.outer.expression(written[one.arg])
                else:
                        default = self._function(self.static(
                           defaults[one.arg], one.arg, place(written[one.arg]),
                           self.pool.recipe.follow(self.number, recipe.default, one.arg)), place(written[one.arg]))
            parameters.append(Parameter(one.arg, default, one in node.args.kwonlyargs))
        return tuple(parameters)

    def _check_stores(self, node: FunctionNode, parameters: set[str]) -> None:
        """Refuse a function that writes to its element or an argument."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
                root: ast.AST = part.value
                while isinstance(root, ast.Subscript):
                    root = root.value
                if isinstance(root, ast.Name) and root.id in parameters - names:
                    raise self.error(part, f"{root.id}[...] = is not supported: a function does not change what it is "
                                           f"given; write into a copy, {root.id}_new = {root.id}.copy(), and return it")

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, nodes: Sequence[ast.stmt]) -> form.Statements:
        """Return a suite. What follows an ``if`` that always leaves becomes its ``else``, so that returns come last."""
        statements: list[form.Statement] = []
        nodes = spelled_out(nodes, self.error)
        for number, node in enumerate(nodes):
            statement = self.statement(node)
            if statement is None:
                continue
            if isinstance(statement, form.If) and not statement.orelse and leaves(statement.body):
                following = self.block(nodes[number + 1:])
                statements.append(form.If(statement.test, statement.body, following, at=statement.at))
                return tuple(statements)
            statements.append(statement)
            if isinstance(statement, form.Return | form.Break | form.Continue):
                break
        return tuple(statements)

    def statement(self, node: ast.stmt) -> form.Statement | None:
        """Return a statement, or None for one without an effect."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, LACKING.get(type(node), f"{type(node).__name__} is not supported"))
        return method(node)

    def _Pass(self, node: ast.Pass) -> None:
        return None

    def _Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._refuse_effect(node.value)
        self.expression(node.value)
        raise self.error(node, "the value of this expression goes nowhere: a translated function has no side effects; "
                               "assign it or return it")

    def _refuse_effect(self, call: ast.Call) -> None:
        if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS_WITH_EFFECT:
            raise self.error(call, f".{call.func.attr}() is not supported: a translated function has no side effects; "
                                   "assign to the items of an array made by np.zeros(n), or return the value")

    def _Assign(self, node: ast.Assign) -> form.Statement:
        return form.Assign(tuple(map(self.target, node.targets)), self.expression(node.value), at=place(node))

    def _AnnAssign(self, node: ast.AnnAssign) -> form.Statement | None:
        if node.value is None:
            return None
        return form.Assign((self.target(node.target),), self.expression(node.value), at=place(node))

    def _AugAssign(self, node: ast.AugAssign) -> form.Statement:
        return form.Augment(self.target(node.target), BINARY[type(node.op)], self.expression(node.value),
                            at=place(node))

    def _If(self, node: ast.If) -> form.Statement:
        return form.If(self.expression(node.test), self.block(node.body), self.block(node.orelse), at=place(node))

    def _For(self, node: ast.For) -> form.Statement:
        return form.For(self.target(node.target), self.expression(node.iter), self.block(node.body),
                        self.block(node.orelse), at=place(node))

    def _While(self, node: ast.While) -> form.Statement:
        return form.While(self.expression(node.test), self.block(node.body), self.block(node.orelse), at=place(node))

    def _Break(self, node: ast.Break) -> form.Statement:
        return form.Break(at=place(node))

    def _Continue(self, node: ast.Continue) -> form.Statement:
        return form.Continue(at=place(node))

    def _Return(self, node: ast.Return) -> form.Statement:
        value = form.Literal(None, at=place(node)) if node.value is None else self.expression(node.value)
        return form.Return(value, at=place(node))

    def _FunctionDef(self, node: ast.FunctionDef) -> form.Statement:
        if node.decorator_list:
            raise self.error(node.decorator_list[0], "a decorator is not supported on a function inside a translated "
                                                     "one; write the plain function")
        definition = self._inner(node)
        if node.name in definition.free:
            raise self.error(node, f"{node.name} calls itself: recursion is not supported; write a loop")
        value = form.Called(definition, at=place(node))
        return form.Assign((form.Local(node.name, at=place(node)),), value, at=place(node))

    def _inner(self, node: FunctionNode) -> Definition:
        reader = _Reader(self.pool, self.function, self.text, label_of(node), self, self.number)
        definition = reader.definition(node, defaults=None)
        self.free |= set(definition.free) - self.locals
        return definition

    def target(self, node: ast.expr) -> Expression:
        """Read the target of an assignment."""
        if isinstance(node, ast.Name):
            return form.Local(node.id, at=place(node))
        if isinstance(node, ast.Tuple | ast.List):
            return form.TupleOf(tuple(map(self.target, node.elts)), at=place(node))
        if isinstance(node, ast.Starred):
            return form.Spread(self.target(node.value), at=place(node))
        if isinstance(node, ast.Subscript):
            base = self.expression(node.value)
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                raise self.error(node, "assigning to a field is not supported: a translated function has no side "
                                       f"effects; return a dict with it, {{{node.slice.value!r}: value}}")
            return form.Index(base, self._indices(node.slice), at=place(node))
        if isinstance(node, ast.Attribute):
            raise self.error(node, f"assigning to .{node.attr} is not supported: a translated function has no side "
                                   "effects; return the value")
        raise self.error(node, LACKING.get(type(node), f"assigning to {type(node).__name__} is not supported"))

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Expression:
        """Return an expression with a value."""
        expression = self.loose(node)
        if isinstance(expression, _Outside):
            raise self.error(node, why_not(expression.value, expression.name))
        return expression

    def loose(self, node: ast.expr) -> Expression:
        """Return an expression, or an object from outside that has attributes."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None or isinstance(node, ast.stmt):
            raise self.error(node, LACKING.get(type(node), f"{type(node).__name__} is not supported"))
        return method(node)

    def _Constant(self, node: ast.Constant) -> Expression:
        if isinstance(node.value, bytes | str):
            raise self.error(node, "a string is not supported: kernels work on numbers")
        if isinstance(node.value, int) and not -2**63 <= node.value < 2**64:
            raise self.error(node, f"{node.value} does not fit 64 bits")
        return form.Literal(node.value, at=place(node))

    def _Name(self, node: ast.Name) -> Expression:
        reader: _Reader | None = self
        while reader is not None:
            if reader.rest == node.id:
                raise self.error(node, f"**{node.id} can only be handed on, as in f(**{node.id}): a kernel's "
                                       "parameters are fixed; name each")
            if node.id in reader.locals:
                if reader is not self:
                    self.free.add(node.id)
                return form.Local(node.id, at=place(node))
            if reader.owner is not None and node.id == reader.owned:
                return self.static(reader.owner[0], node.id, place(node), reader.owner[1])
            reader = reader.outer
        try:
            assert self.function is not None
            value = lookup(self.function, node.id)
        except Unbound as error:
            raise self.error(node, f"the name {node.id} has no value here or around the function") from error
        return self.static(value, node.id, place(node), self.pool.recipe.name(self.function, self.number, node.id))

    def static(self, value: Any, name: str, at: form.At, found_at: int) -> Expression:
        """Return a value from around the function, and the number of the lookup that found it."""
        if value is None or isinstance(value, bool) or value is Ellipsis:
            self.pool.recipe.expect(found_at, value)
            return form.Literal(value, at=at)
        library_name = registry.name_of(value)
        if library_name is not None:
            self.pool.recipe.expect(found_at, value)
            return form.Library(library_name, at=at)
        instead = registry.written(value)
        if instead is not None:
            self.pool.recipe.expect(found_at, value)
            written_at = self.pool.recipe.follow(found_at, registry.written, None)
            return form.Called(self.pool.read(instead, written_at), at=at)
        if type(value) is int and 2**63 <= value < 2**64:
            self.pool.recipe.expect(found_at, value)
            return form.Literal(value, at=at)
        if isinstance(value, int | float | complex | np.generic | np.ndarray | list | Referable):
            try:
                return form.Captured(self.pool.number(name, constant(value, name), found_at), name, at=at)
            except Refusal as error:
                if type(value) is list and is_taken_apart(value):
                    return form.ListOf(self._items(value, name, at, found_at), at=at)
                raise complain(str(error), at, self.text, self.name) from error
        if type(value) is tuple:
            return form.TupleOf(self._items(value, name, at, found_at), at=at)
        if is_named_tuple(type(value)):
            return form.TupleOf(self._items(value, name, at, found_at), value._fields, at=at)
        if is_named_tuple(value):
            self.pool.recipe.expect(found_at, value)
            return form.Called(self._maker(value, at, found_at), at=at)
        if isinstance(value, Stencil):
            self.pool.recipe.expect_kind(found_at, value)
            return self.static(value.function, name, at, self.pool.recipe.follow(found_at, getattr, "function"))
        if isinstance(value, types.FunctionType | types.MethodType | functools.partial | functools._lru_cache_wrapper):
            if getattr(value, "__code__", None) in self.pool.reading:
                raise complain(f"{name} calls itself: recursion is not supported; write a loop", at, self.text,
                               self.name)
            if not library.is_random(value):
                return form.Called(self._placed(value, found_at, at), at=at)
        self.pool.recipe.expect_kind(found_at, value)
        return _Outside(value, name, found_at, at=at)

    def _items(self, value: Any, name: str, at: form.At, found_at: int) -> tuple[Expression, ...]:
        """Return the items of a captured tuple or list, each read as an expression of its own."""
        self.pool.recipe.expect_items(found_at, value)
        return tuple(self.static(item, f"{name}[{i}]", at, self.pool.recipe.follow(found_at, recipe.item, i))
                     for i, item in enumerate(value))

    def _maker(self, kind: Any, at: form.At, found_at: int) -> Definition:
        """Return the function that makes a named tuple of its fields."""
        parameters = tuple(Parameter(name, self.static(
            kind._field_defaults[name], name, at, self.pool.recipe.follow(
                self.pool.recipe.follow(found_at, getattr, "_field_defaults"), recipe.item, name))
            if name in kind._field_defaults else None) for name in kind._fields)
        result = form.TupleOf(tuple(form.Local(name, at=at) for name in kind._fields), kind._fields, at=at)
        return Definition(kind.__name__, parameters, (form.Return(result, at=at),), text=self.text, at=at)

    def _is_field(self, name: str) -> bool:
        """Return whether a named tuple that the function's module knows has a field of this name."""
        kinds: Iterable[Any] = self.function.__globals__.values() if self.function is not None else ()
        return any(is_named_tuple(kind) and name in kind._fields for kind in kinds)

    def _Attribute(self, node: ast.Attribute) -> Expression:
        value = self.loose(node.value)
        if not isinstance(value, _Outside):
            self._refuse_attribute(node, value)
            return form.Attribute(value, node.attr, at=place(node))
        full, found_at = f"{value.name}.{node.attr}", self.pool.recipe.follow(value.found, getattr, node.attr)
        if isinstance(value.value, RDD | SparkContext):
            raise self.error(node, f"{value.name} is Spark's, which a function that workers run cannot use: compute "
                                   f"what {full} gives before, and make it an argument of the function")
        try:
            member = getattr(value.value, node.attr)
        except AttributeError as error:
            raise self.error(node, f"{value.name} has no {node.attr}{did_you_mean(value.value, node.attr)}") from error
        if isinstance(member, float) and value.value in library.MODULES:
            self.pool.recipe.expect(found_at, member)
            return form.Literal(float(member), at=place(node))
        return self.static(member, full, place(node), found_at)

    def _refuse_attribute(self, node: ast.Attribute, value: Expression) -> None:
        if isinstance(value, form.Library) and value.name in PYTHON_NUMBERS:
            raise self.error(node, f"{value.name}.{node.attr} is not supported{unbound(value.name, node.attr)}")
        if isinstance(value, form.Library):
            raise self.error(node, f"{value.name}.{node.attr} is not supported; of the reductions there are np.sum, "
                                   "np.prod, np.min, np.max, np.any, np.all, np.cumsum and np.cumprod")
        is_known = isinstance(value, form.TupleOf) and node.attr in value.names
        if not is_known and node.attr not in (*library.PROPERTIES, *library.OF_SPARSE, *registry.methods()) \
                and not self._is_field(node.attr):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            raise self.error(node, attribute_lacks(node.attr, of))

    def _UnaryOp(self, node: ast.UnaryOp) -> Expression:
        operand = self.expression(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(operand, form.Literal) \
                and type(operand.value) in (int, float, complex):
            return form.Literal(-operand.value, at=place(node))
        return form.Unary(UNARY[type(node.op)], operand, at=place(node))

    def _BinOp(self, node: ast.BinOp) -> Expression:
        return form.Binary(BINARY[type(node.op)], self.expression(node.left), self.expression(node.right),
                           at=place(node))

    def _Compare(self, node: ast.Compare) -> Expression:
        return form.Compare(self.expression(node.left), tuple(COMPARE[type(operator)] for operator in node.ops),
                            tuple(map(self.expression, node.comparators)), at=place(node))

    def _BoolOp(self, node: ast.BoolOp) -> Expression:
        return form.Logical("and" if isinstance(node.op, ast.And) else "or", tuple(map(self.expression, node.values)),
                            at=place(node))

    def _IfExp(self, node: ast.IfExp) -> Expression:
        return form.Choice(self.expression(node.test), self.expression(node.body), self.expression(node.orelse),
                           at=place(node))

    def _Call(self, node: ast.Call) -> Expression:
        for keyword in node.keywords:
            if keyword.arg is None and not (self.rest and isinstance(keyword.value, ast.Name)
                                            and keyword.value.id == self.rest):
                raise self.error(node, "** in a call is not supported; write the arguments out")
        called = self.loose(node.func)
        if isinstance(called, _Outside) and called.value is ord and not node.keywords:
            return self._code_point(node)
        function = self._function(called, place(node.func))
        if function == form.Library("float") and len(node.args) == 1:
            text = spelled(node.args[0])
            if text is not None:
                return form.Literal(text, at=place(node))
        arguments = tuple(form.Spread(self.expression(one.value), at=place(one)) if isinstance(one, ast.Starred) else
                          self._argument(one, function) for one in node.args)
        keywords = tuple((one.arg, self._argument(one.value, function)) for one in node.keywords if one.arg)
        try:
            signatures.check(function, arguments, dict(keywords))
        except Refusal as error:
            raise self.error(node, str(error)) from error
        for one in (*arguments, *dict(keywords).values()):
            if isinstance(one, form.Literal) and isinstance(one.value, str) and function not in _OF_STRINGS:
                raise complain(LACKING[ast.JoinedStr], one.at, self.text, self.name)
        return form.Call(function, arguments, keywords, at=place(node))

    def _code_point(self, node: ast.Call) -> Expression:
        """Read ``ord("a")``, which is compared with rows of bytes."""
        match node.args:
            case [ast.Constant(str() | bytes() as text)] if len(text) == 1:
                return form.Literal(ord(text), at=place(node))
        raise self.error(node, 'ord() is of a character that is written out, as in p == ord("a")')

    def _argument(self, node: ast.expr, function: Expression) -> Expression:
        """Return an argument; of NumPy's functions a dtype may be written as its name, and a norm's order or
        subscripts.
        """
        if not isinstance(function, form.Called | form.Local) and isinstance(node, ast.Constant) \
                and isinstance(node.value, str):
            try:
                named = None if function in _OF_STRINGS else registry.name_of(np.dtype(node.value).type)
            except TypeError:
                named = None
            return form.Literal(node.value, at=place(node)) if named is None else form.Library(named, at=place(node))
        return self.expression(node)

    def _function(self, value: Expression, at: form.At) -> Expression:
        """Read a captured object as a function; refuse objects that are none."""
        if not isinstance(value, _Outside):
            return value
        if library.is_library(value.value) or not recipe.wrapped_attribute(value.value):
            raise complain(why_not(value.value, value.name), at, self.text, self.name)
        return form.Called(self._placed(value.value, value.found, at), at=at)

    def _placed(self, value: Any, found_at: int, at: form.At) -> Definition:
        """Read a function from the surroundings; if it is no Python function, report the error at its use."""
        try:
            return self.pool.read(value, found_at)
        except TranslationError as error:
            if error.file:
                raise
            raise complain(error.message, at, self.text, self.name) from error

    def _Subscript(self, node: ast.Subscript) -> Expression:
        value = self.loose(node.value)
        if isinstance(value, _Outside):
            return self._item(node, value)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return form.FieldOf(value, node.slice.value, at=place(node))
        return form.Index(value, self._indices(node.slice), at=place(node))

    def _item(self, node: ast.Subscript, outside: _Outside) -> Expression:
        """Read the item that a dict from around the function has under a key that is written out."""
        items = outside.value
        if not (isinstance(items, dict) and isinstance(node.slice, ast.Constant)):
            raise self.error(node.value, why_not(items, outside.name))
        key = node.slice.value
        if key not in items:
            raise self.error(node, f"{outside.name} has no item {key!r}; it has {', '.join(map(repr, items))[:200]}")
        found_at = self.pool.recipe.follow(outside.found, recipe.item, key)
        return self.static(items[key], f"{outside.name}[{key!r}]", place(node), found_at)

    def _indices(self, node: ast.expr) -> tuple[Expression, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(map(self.expression, parts))

    def _Slice(self, node: ast.Slice) -> Expression:
        start, stop, step = (None if part is None else self.expression(part)
                             for part in (node.lower, node.upper, node.step))
        return form.Slice(start, stop, step, at=place(node))

    def _Tuple(self, node: ast.Tuple) -> Expression:
        return form.TupleOf(tuple(map(self.expression, node.elts)), at=place(node))

    def _List(self, node: ast.List) -> Expression:
        return form.ListOf(tuple(map(self.expression, node.elts)), at=place(node))

    def _Dict(self, node: ast.Dict) -> Expression:
        names = []
        for key in node.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise self.error(key or node, "a dict has the fields' names written out as its keys: {\"x\": value}")
            names.append(key.value)
        if len(set(names)) != len(names):
            raise self.error(node, "a dict names a field twice")
        return form.DictOf(tuple(names), tuple(map(self.expression, node.values)), at=place(node))

    def _Lambda(self, node: ast.Lambda) -> Expression:
        return form.Called(self._inner(node), at=place(node))

    def _GeneratorExp(self, node: ast.GeneratorExp) -> Expression:
        return self._comprehension(form.Each, node, list(node.generators))

    def _ListComp(self, node: ast.ListComp) -> Expression:
        return self._comprehension(form.Listed, node, list(node.generators))

    def _comprehension(self, kind: type, node: ast.GeneratorExp | ast.ListComp,
                       generators: list[ast.comprehension]) -> Expression:
        """Return its targets are variables of its own, which Python keeps apart from the function's."""
        generator, *inner = generators
        names = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
        iterable, before = self.expression(generator.iter), set(self.locals)
        self.locals |= names
        target, conditions = self.target(generator.target), tuple(map(self.expression, generator.ifs))
        value = self._comprehension(form.Each, node, inner) if inner else self.expression(node.elt)
        self.locals = before
        return kind(value, target, iterable, conditions, at=place(node))

    def error(self, node: ast.AST, message: str) -> TranslationError:
        """Return an error at a syntax node."""
        return complain(message, place(node), self.text, self.name)
