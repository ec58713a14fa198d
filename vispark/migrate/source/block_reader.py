"""Reader of a function of a block of rows as a function of one row, by the shapes of its values."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vispark.migrate.source.program import SourceProgram
from vispark.migrate.source.row_shapes import BlockShape, NotRows, elementwise, product, reduced, transposed

#: Functions of NumPy's that go element by element.
_ELEMENTWISE = frozenset([
    "abs", "absolute", "add", "arctan", "ceil", "clip", "cos", "cosh", "divide", "exp", "expm1", "fabs", "floor",
    "isfinite", "isnan", "log", "log10", "log1p", "log2", "logaddexp", "maximum", "minimum", "multiply", "negative",
    "power", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "where"])
_REDUCTIONS = frozenset(["sum", "mean", "min", "max", "prod", "argmin", "argmax", "any", "all", "std", "var"])
_SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_SIGN_OF = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_COUNT = ast.Constant(1)


@dataclass
class RowDefinitions:
    """Row functions that are made of a program's functions, by these."""

    program: SourceProgram
    ranks: Mapping[str, int]
    made: dict[ast.FunctionDef, str] = field(default_factory=dict)
    #: Functions that are being made: one that calls itself is refused.
    open: list[ast.FunctionDef] = field(default_factory=list)


@dataclass(frozen=True)
class RowValue:
    """Expression of the row's function, with the shape of the value that it stands for in the block's; parts of a
    tuple have values of their own.
    """

    node: ast.expr
    shape: BlockShape
    parts: tuple[RowValue, ...] = ()


def named_row_function(shared: RowDefinitions, function: ast.FunctionDef,
                       shapes: list[BlockShape]) -> tuple[str, RowValue]:
    """Return the name of a function's row function, which is its own where nothing changes, and its result."""
    if function in shared.open:
        raise NotRows(f"{function.name} calls itself")
    if function.decorator_list:
        raise NotRows(f"{function.name} is decorated")
    known = parameters(shared, function.args, shapes, function.name)
    shared.open.append(function)
    reader = BlockReader(shared, known, function.name)
    body, value = reader.body(function.body)
    shared.open.pop()
    row_function = copy.copy(function)
    row_function.name, row_function.body = f"{function.name}_row", body
    text = ast.unparse(ast.fix_missing_locations(row_function))
    if text.partition("(")[2] == ast.unparse(_without_docstring(function)).partition("(")[2]:
        return function.name, value
    if row_function.name in shared.program.functions:
        raise NotRows(f"{row_function.name} is there already")
    if shared.made.setdefault(function, text) != text:
        raise NotRows(f"{function.name} is called with arrays of several shapes")
    return row_function.name, value


def parameters(shared: RowDefinitions, arguments: ast.arguments, shapes: list[BlockShape],
               name: str) -> dict[str, BlockShape]:
    """Return the shapes of a function's parameters: those that are given, and of the others those of their defaults.

    Raises
    ------
    NotRows
        If others than its parameters are given, or a default is computed, which the row's function would do again.
    """
    names = [each.arg for each in arguments.args]
    if len(shapes) > len(names) or len(shapes) < len(names) - len(arguments.defaults) or arguments.vararg \
            or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise NotRows(f"{name} is called with others than its parameters")
    if computed := [each for each in arguments.defaults if not isinstance(each, ast.Name | ast.Constant)]:
        raise NotRows(f"line {computed[0].lineno}: the default {ast.unparse(computed[0])} is computed; give it a name")
    rest = names[len(shapes):]
    if unknown := [each for each in rest if each not in shared.ranks]:
        raise NotRows(f"how many axes the default of {unknown[0]} has is not known; record a run")
    return dict(zip(names, [*shapes, *[BlockShape(shared.ranks[each]) for each in rest]], strict=True))


def _without_docstring(function: ast.FunctionDef) -> ast.FunctionDef:
    stripped = copy.copy(function)
    stripped.body = [each for each in function.body if not _is_text(each)]
    return stripped


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class BlockReader:
    """Reader of one function of a block; one method per kind of syntax node."""

    def __init__(self, shared: RowDefinitions, known: dict[str, BlockShape], name: str):
        self.shared, self.known, self.name = shared, known, name

    def body(self, statements: list[ast.stmt]) -> tuple[list[ast.stmt], RowValue]:
        """Return the statements of the row's function, and its result."""
        read: list[ast.stmt] = []
        for statement in statements:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    result = self.value(value)
                    return [*read, ast.Return(result.node)], result
                case ast.Assign(targets=[ast.Name() as target], value=value):
                    one = self.value(value)
                    self._bind([target], [one], statement)
                    read.append(ast.Assign([target], one.node))
                case ast.Assign(targets=[ast.Tuple(elts=targets) as target], value=ast.Tuple() as value) if len(
                        targets) == len(value.elts):
                    one = self.value(value)
                    self._bind(targets, one.parts, statement)
                    read.append(ast.Assign([target], one.node))
                case _ if _is_text(statement):
                    pass
                case _:
                    what = type(statement).__name__.lower()
                    raise NotRows(f"line {statement.lineno}: {what} in a function of blocks")
        raise NotRows(f"{self.name} returns nothing")

    def _bind(self, targets: Sequence[ast.expr], values: Sequence[RowValue], statement: ast.stmt) -> None:
        """Note the shapes of what is assigned, all of which was read before."""
        for target, value in zip(targets, values, strict=True):
            if value.parts or not isinstance(target, ast.Name):
                raise NotRows(f"line {statement.lineno}: a tuple as a variable")
            self.known[target.id] = value.shape

    def value(self, node: ast.expr) -> RowValue:
        """Return an expression of the row's function."""
        method: Callable[[ast.expr], RowValue] | None = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise NotRows(f"line {node.lineno}: {ast.unparse(node)} in a function of blocks")
        return method(node)

    def _Constant(self, node: ast.Constant) -> RowValue:
        return RowValue(node, BlockShape(0))

    def _Name(self, node: ast.Name) -> RowValue:
        if node.id in self.known:
            return RowValue(node, self.known[node.id])
        if node.id not in self.shared.ranks:
            raise NotRows(f"line {node.lineno}: how many axes {node.id} has is not known; record a run")
        return RowValue(node, BlockShape(self.shared.ranks[node.id]))

    def _Tuple(self, node: ast.Tuple) -> RowValue:
        parts = tuple([self.value(each) for each in node.elts])
        return RowValue(ast.Tuple([each.node for each in parts], ast.Load()), BlockShape(0), parts)

    def _UnaryOp(self, node: ast.UnaryOp) -> RowValue:
        inner = self.value(node.operand)
        if inner.shape.is_sum and not isinstance(node.op, ast.USub):
            raise NotRows(f"line {node.lineno}: {ast.unparse(node)} of a sum over the rows")
        return RowValue(ast.UnaryOp(node.op, inner.node), inner.shape)

    def _BinOp(self, node: ast.BinOp) -> RowValue:
        first, second = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.MatMult):
            return self._product(first, second, lambda: ast.BinOp(first.node, ast.MatMult(), second.node))
        return RowValue(ast.BinOp(first.node, node.op, second.node),
                      elementwise(first.shape, second.shape, _SIGNS.get(type(node.op), "?")))

    def _Compare(self, node: ast.Compare) -> RowValue:
        first, *others = map(self.value, [node.left, *node.comparators])
        shape = first.shape
        for one in others:
            shape = elementwise(shape, one.shape, "<")
        return RowValue(ast.Compare(first.node, node.ops, [one.node for one in others]), replace(shape, is_bool=True))

    def _product(self, first: RowValue, second: RowValue, written: Callable[[], ast.expr]) -> RowValue:
        shape, way = product(first.shape, second.shape)
        if way == "outer":
            return RowValue(_called("outer", first.node, second.node), shape)
        return RowValue(written() if way == "@" else ast.BinOp(first.node, ast.Mult(), second.node), shape)

    # -- parts of arrays ----------------------------------------------------------------------------------------------

    def _Attribute(self, node: ast.Attribute) -> RowValue:
        if _is_numpy(node.value) and node.attr in ("pi", "e", "inf", "nan"):
            return RowValue(node, BlockShape(0))
        if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.shared.ranks:
            return RowValue(node, BlockShape(self.shared.ranks[f"{node.value.id}.{node.attr}"]))
        inner = self.value(node.value)
        if node.attr != "T":
            raise NotRows(f"line {node.lineno}: .{node.attr} of an array of rows")
        shape = transposed(inner.shape)
        return RowValue(inner.node if shape.of_row < 2 else ast.Attribute(inner.node, "T", ast.Load()), shape)

    def _Subscript(self, node: ast.Subscript) -> RowValue:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" and isinstance(
                node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return self._extent(self.value(node.value.value), node.slice.value, node)
        inner = self.value(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if inner.shape.is_sum:
            raise NotRows(f"line {node.lineno}: a part of a sum over the rows; take it from the array that is summed")
        if inner.shape.rows is None:
            return self._part_of_constant(inner, parts, node)
        return self._part(inner, parts, node)

    def _part_of_constant(self, inner: RowValue, parts: list[ast.expr], node: ast.Subscript) -> RowValue:
        fewer = sum(not isinstance(each, ast.Slice) and not _is_none(each) for each in parts)
        for part in parts:
            if not isinstance(part, ast.Slice) and not _is_none(part) and self.value(part).shape != BlockShape(0):
                raise NotRows(f"line {node.lineno}: an index that is an array")
        more = sum(map(_is_none, parts))
        return RowValue(node, BlockShape(inner.shape.ndim - fewer + more))

    def _part(self, inner: RowValue, parts: list[ast.expr], node: ast.Subscript) -> RowValue:
        """Return a part of an array of rows, which takes all of these."""
        shape, kept, axes, at = inner.shape, [], [], 0
        if shape.is_column or shape.is_bool:
            raise NotRows(f"line {node.lineno}: a part of a column, or of bools")
        rows = shape.ndim + (shape.rows or 0)
        for part in parts:
            if _is_none(part):
                kept.append(part)
                axes.append(False)
                continue
            if at == rows and not _is_all(part):
                raise NotRows(f"line {node.lineno}: {ast.unparse(node)} takes some of the rows")
            if at != rows:
                kept.append(part)
            if isinstance(part, ast.Slice):
                axes.append(at == rows)
            elif self.value(part).shape != BlockShape(0):
                raise NotRows(f"line {node.lineno}: an index that is an array")
            at += 1
        axes += [place == rows for place in range(at, shape.ndim)]
        part_shape = BlockShape(len(axes), axes.index(True) - len(axes))
        while kept and _is_all(kept[-1]):
            kept.pop()
        if not shape.of_row and kept:
            if part_shape != BlockShape(2, -2):
                raise NotRows(f"line {node.lineno}: {ast.unparse(node)}; of numbers of rows there is y[:, None] alone")
            return RowValue(inner.node, BlockShape(2, -2, is_column=True))
        index: ast.expr | None = ast.Tuple(kept, ast.Load()) if len(kept) > 1 else kept[0] if kept else None
        return RowValue(inner.node if index is None else ast.Subscript(inner.node, index, ast.Load()), part_shape)

    def _extent(self, inner: RowValue, axis: int, node: ast.AST) -> RowValue:
        """Return the length of an axis: the number of rows is a sum of ones."""
        shape = inner.shape
        if shape.rows is None:
            extents = ast.Attribute(inner.node, "shape", ast.Load())
            return RowValue(ast.Subscript(extents, ast.Constant(axis), ast.Load()), BlockShape(0))
        place = axis - shape.ndim if axis >= 0 else axis
        if place == shape.rows:
            return RowValue(_COUNT, BlockShape(0, None, True))
        if shape.of_row == 1:
            return RowValue(ast.Call(ast.Name("len", ast.Load()), [inner.node], []), BlockShape(0))
        raise NotRows(f"line {getattr(node, 'lineno', 0)}: an extent of more than two axes")

    # -- calls --------------------------------------------------------------------------------------------------------

    def _Call(self, node: ast.Call) -> RowValue:
        match node.func:
            case ast.Attribute(value=of, attr=name) if _is_numpy(of):
                return self._of_numpy(name, node)
            case ast.Attribute(value=of, attr="dot") if len(node.args) == 1:
                return self._dot(of, node.args[0])
            case ast.Attribute(value=of, attr=name) if name in _REDUCTIONS:
                return self._reduction(name, self.value(of), node.args, node)
            case ast.Attribute(value=of, attr="ravel" | "flatten" | "squeeze"):
                return self._flat(self.value(of), node)
            case ast.Name(id="len") if len(node.args) == 1:
                return self._extent(self.value(node.args[0]), 0, node)
            case ast.Name(id="abs"):
                return self._each(node, node.func)
            case ast.Name(id=name) if name in self.shared.program.functions and not node.keywords:
                values = [self.value(each) for each in node.args]
                row_name, value = named_row_function(self.shared, self.shared.program.functions[name],
                                                     [one.shape for one in values])
                call = ast.Call(ast.Name(row_name, ast.Load()), [one.node for one in values], [])
                return RowValue(call, value.shape, value.parts)
        raise NotRows(f"line {node.lineno}: {ast.unparse(node.func)} in a function of blocks")

    def _of_numpy(self, name: str, node: ast.Call) -> RowValue:
        if name in ("dot", "matmul") and len(node.args) == 2:
            return self._dot(*node.args)
        if name == "transpose" and len(node.args) == 1:
            return self._Attribute(ast.copy_location(ast.Attribute(node.args[0], "T", ast.Load()), node))
        if name in _REDUCTIONS and node.args:
            return self._reduction(name, self.value(node.args[0]), node.args[1:], node)
        if name in _ELEMENTWISE and not node.keywords:
            return self._each(node, node.func)
        raise NotRows(f"line {node.lineno}: np.{name} in a function of blocks")

    def _dot(self, left: ast.expr, right: ast.expr) -> RowValue:
        first, second = self.value(left), self.value(right)
        return self._product(first, second, lambda: _called("dot", first.node, second.node))

    def _each(self, node: ast.Call, function: ast.expr) -> RowValue:
        """Return a call of a function that goes element by element."""
        first, *others = map(self.value, node.args)
        name = function.attr if isinstance(function, ast.Attribute) else ""
        if not others and first.shape.is_sum and name != "negative":
            raise NotRows(f"line {node.lineno}: {ast.unparse(function)} of a sum over the rows")
        shape = first.shape
        for one in others:
            shape = elementwise(shape, one.shape, _SIGN_OF.get(name, "?"))
        shape = replace(shape, is_bool=name in ("isnan", "isfinite"))
        return RowValue(ast.Call(function, [first.node, *[one.node for one in others]], []), shape)

    def _reduction(self, name: str, inner: RowValue, arguments: list[ast.expr], node: ast.Call) -> RowValue:
        axes = [*arguments, *[each.value for each in node.keywords if each.arg == "axis"]]
        if len(axes) > 1 or any(each.arg != "axis" for each in node.keywords):
            raise NotRows(f"line {node.lineno}: {name} with more than an axis")
        axis = None
        if axes:
            try:
                axis = ast.literal_eval(axes[0])
            except ValueError as error:
                raise NotRows(f"line {node.lineno}: an axis that is not written out") from error
            if axis is not None and type(axis) is not int:
                raise NotRows(f"line {node.lineno}: {name} over several axes")
        shape, inside, is_left = reduced(inner.shape, axis, name)
        if not is_left:
            # NumPy counts bools.
            return RowValue(ast.BinOp(ast.Constant(1), ast.Mult(), inner.node) if inner.shape.is_bool else inner.node,
                          shape)
        return RowValue(_called(name, inner.node, **({} if inside is None else {"axis": ast.Constant(inside)})), shape)

    def _flat(self, inner: RowValue, node: ast.Call) -> RowValue:
        if node.args or node.keywords or not (inner.shape.is_column or inner.shape.ndim == 1):
            raise NotRows(f"line {node.lineno}: {ast.unparse(node)} of more than a column")
        return RowValue(inner.node, BlockShape(1, -1) if inner.shape.is_column else inner.shape)


def _called(name: str, *arguments: ast.expr, **named: ast.expr) -> ast.expr:
    function = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [ast.keyword(one, value) for one, value in named.items()])


def _is_numpy(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("np", "numpy")


def _is_none(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or \
        (isinstance(node, ast.Attribute) and node.attr == "newaxis")


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None
