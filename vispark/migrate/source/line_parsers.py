"""Reader of functions of a line of text, by their syntax tree: the numbers of its fields, or why none are known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vispark.migrate.source.program import SourceProgram

#: dtypes by the names that programs give them; of Python's own numbers those that NumPy makes of them.
_DTYPES = {"float": "float64", "float64": "float64", "double": "float64", "f8": "float64", "float32": "float32",
           "f4": "float32", "int": "int64", "int64": "int64", "i8": "int64", "int32": "int32", "i4": "int32"}
#: Methods of a line that change nothing where it holds numbers.
_STRIPPING = frozenset(["strip", "rstrip", "lstrip"])


class NotNumbers(Exception):
    """Reason for which what is made of a line is not known to be numbers of its fields."""


@dataclass(frozen=True)
class LineValue:
    """Value that a parser has while it runs.

    Attributes
    ----------
    kind : str
        "row" of a DataFrame, "line", "fields", "field", "number", "iterator", "list", "tuple" or "array".
    delimiter : str or None
        The character between fields, None for spaces; "" while the line is whole.
    columns : tuple of int or None
        Which fields; None for all.
    dtype : str
        Of numbers.
    """

    kind: str
    delimiter: str | None = ""
    columns: tuple[int, ...] | None = None
    dtype: str = ""

    def arguments(self) -> list[str]:
        """Return the arguments of ``vispark.read_text`` behind the path, as text."""
        arguments = [f'"{self.dtype}"']
        if self.delimiter:
            arguments.append(f"delimiter={self.delimiter!r}".replace("'", '"'))
        if self.kind == "number":
            arguments.append(f"columns={self.columns[0] if self.columns else 0}")
        elif self.columns is not None:
            arguments.append(f"columns={list(self.columns)}")
        return arguments


class LineParser:
    """Reader of the functions that a line goes through.

    Parameters
    ----------
    program : SourceProgram
        The functions' program.

    Examples
    --------
    >>> program = SourceProgram("job.py", "f = lambda line: np.array([float(x) for x in line.split(',')])")
    >>> LineParser(program).result(program.tree.body[0].value, LineValue("line")).arguments()
    ['"float64"', 'delimiter=","']
    """

    def __init__(self, program: SourceProgram):
        self.program = program
        self._numpy = {each.asname or each.name: each.name for node in program.tree.body
                       if isinstance(node, ast.ImportFrom) and node.module == "numpy" for each in node.names}

    def result(self, function: ast.expr, value: LineValue) -> LineValue:
        """Return the value that a function makes of another one.

        Raises
        ------
        NotNumbers
            If that is not known.
        """
        if isinstance(function, ast.Name) and function.id in self.program.functions:
            return self._of_body(self.program.functions[function.id], value)
        if isinstance(function, ast.Lambda):
            return self.value(function.body, {_parameter(function): value})
        return self._called(function, [value], {})

    def _of_body(self, function: ast.FunctionDef, value: LineValue) -> LineValue:
        names, body = {_parameter(function): value}, function.body
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=expression):
                    names[name] = self.value(expression, names)
                case ast.Return(value=expression) if expression is not None:
                    return self.value(expression, names)
                case _:
                    raise NotNumbers(f"{self.program.where(statement.lineno)} is more than an assignment and a return")
        raise NotNumbers(f"{function.name} returns nothing")

    def value(self, node: ast.expr, names: Mapping[str, LineValue]) -> LineValue:
        """Return the value of an expression.

        Raises
        ------
        NotNumbers
            If it is not known to be made of the line's fields alone.
        """
        match node:
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Attribute(value=of, attr="value") if self.value(of, names).kind == "row":
                return LineValue("line")
            case ast.Call(func=ast.Attribute(value=of, attr=method)) if not self._is_numpy(of):
                return self._of_method(self.value(of, names), method, node)
            case ast.Call(func=function, args=args, keywords=keywords) if not any(
                    isinstance(each, ast.Starred) for each in args):
                return self._called(function, self._arguments(args, names), {
                    each.arg or "": each.value for each in keywords}, args)
            case ast.Subscript(value=of, slice=place):
                return _item(self.value(of, names), place, node)
            case ast.ListComp(elt=element, generators=[ast.comprehension(
                    target=ast.Name(id=name), iter=over, ifs=[], is_async=0)]):
                return self._each(self.value(over, names), element, name, names, "list")
            case ast.GeneratorExp(elt=element, generators=[ast.comprehension(
                    target=ast.Name(id=name), iter=over, ifs=[], is_async=0)]):
                return self._each(self.value(over, names), element, name, names, "iterator")
            case ast.List(elts=items) | ast.Tuple(elts=items) if items:
                return _joined([self.value(each, names) for each in items],
                               "list" if isinstance(node, ast.List) else "tuple", node)
        raise _unknown(node)

    def _arguments(self, nodes: list[ast.expr], names: Mapping[str, LineValue]) -> list[LineValue | None]:
        """Return the arguments' values; None of those that are no part of the line, as a dtype and a function are."""
        values: list[LineValue | None] = []
        for node in nodes:
            uses = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & names.keys()
            values.append(self.value(node, names) if uses else None)
        return values

    def _each(self, over: LineValue, element: ast.expr, name: str, names: Mapping[str, LineValue],
              kind: str) -> LineValue:
        if over.kind != "fields":
            raise _unknown(element)
        # Each field is what one of them is.
        one = self.value(element, {**names, name: LineValue("field", over.delimiter)})
        if one.kind != "number":
            raise _unknown(element)
        return replace(over, kind=kind, dtype=one.dtype)

    def _of_method(self, of: LineValue, method: str, call: ast.Call) -> LineValue:
        constants = [ast.literal_eval(each) for each in call.args if isinstance(each, ast.Constant)]
        if len(constants) == len(call.args) and not call.keywords:
            if of.kind in ("line", "field") and method in _STRIPPING and not "".join(constants).strip():
                return of
            if of.kind == "line" and method == "split" and len(constants) <= 1:
                return LineValue("fields", _delimiter(constants[0] if constants else None, call))
        if of.kind == "array" and method == "astype" and len(call.args) == 1:
            return replace(of, dtype=self._converted(of.dtype, self._dtype(call.args[0]), call))
        raise _unknown(call)

    def _called(self, function: ast.expr, values: list[LineValue | None], named: Mapping[str, ast.expr],
                nodes: list[ast.expr] | None = None) -> LineValue:
        name, nodes = self._name(function), nodes or []
        of = next((each for each in values if each is not None), None)
        if name in ("float", "int", *(f"np.{each}" for each in _DTYPES)) and len(values) == 1 and not named and of \
                and of.kind in ("field", "line"):
            dtype = _DTYPES[name.removeprefix("np.")]
            return LineValue("number", of.delimiter or None, of.columns, dtype)
        if name == "map" and len(values) == 2 and values[0] is None and of and not named:
            one = self._called(nodes[0], [LineValue("field", of.delimiter)], {})
            if of.kind == "fields" and one.kind == "number":
                return replace(of, kind="iterator", dtype=one.dtype)
        if name in ("list", "tuple") and len(values) == 1 and of and of.kind in ("iterator", "list", "tuple"):
            return replace(of, kind=name)
        if name in ("np.array", "np.asarray") and values and values[0] is of and of is not None:
            return self._array(of, nodes, named)
        if name == "np.fromstring" and of is not None and of.kind == "line" and values[0] is of:
            return self._from_string(nodes, named)
        raise NotNumbers(f"{ast.unparse(function)} is not known to make numbers of a line's fields")

    def _array(self, of: LineValue, nodes: list[ast.expr], named: Mapping[str, ast.expr]) -> LineValue:
        dtype = nodes[1] if len(nodes) > 1 else named.get("dtype")
        if of.kind == "fields" and dtype is not None and not named.keys() - {"dtype"}:
            return replace(of, kind="array", dtype=self._dtype(dtype))
        if of.kind not in ("list", "tuple", "array") or named.keys() - {"dtype"} or len(nodes) > 2:
            raise NotNumbers("np.array of what is no list of numbers")
        return replace(of, kind="array", dtype=of.dtype if dtype is None else self._converted(
            of.dtype, self._dtype(dtype), dtype))

    def _from_string(self, nodes: list[ast.expr], named: Mapping[str, ast.expr]) -> LineValue:
        dtype = nodes[1] if len(nodes) > 1 else named.get("dtype")
        sep = named.get("sep")
        if not isinstance(sep, ast.Constant) or not isinstance(sep.value, str) or len(nodes) > 2 \
                or named.keys() - {"dtype", "sep"}:
            raise NotNumbers("np.fromstring without sep=")
        return LineValue("array", _delimiter(sep.value, sep), None, "float64" if dtype is None else self._dtype(dtype))

    def _converted(self, before: str, after: str, node: ast.AST) -> str:
        """Return the dtype of text that is read as one and becomes another: numbers may become narrower floats."""
        if before == after or (before, after) == ("float64", "float32"):
            return after
        raise NotNumbers(f"{self.program.where(getattr(node, 'lineno', 0))}: text is read as {before} and becomes "
                         f"{after}")

    def _dtype(self, node: ast.expr) -> str:
        name = node.value if isinstance(node, ast.Constant) else self._name(node).removeprefix("np.")
        if name not in _DTYPES:
            raise NotNumbers(f"the dtype {ast.unparse(node)} is not known without a run")
        return _DTYPES[name]

    def _name(self, node: ast.expr) -> str:
        """Return a name as it is known here: NumPy's begin with ``np.``."""
        if isinstance(node, ast.Name):
            if node.id in self.program.functions:
                return ""
            return f"np.{self._numpy[node.id]}" if node.id in self._numpy else node.id
        return f"np.{node.attr}" if isinstance(node, ast.Attribute) and self._is_numpy(node.value) else ""

    @staticmethod
    def _is_numpy(node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in ("np", "numpy")


def _parameter(function: ast.Lambda | ast.FunctionDef) -> str:
    """Return the name of a function's only parameter."""
    arguments = function.args
    if len(arguments.args) != 1 or arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
        raise NotNumbers("its function is not one of a line alone")
    return arguments.args[0].arg


def _delimiter(text: str | None, node: ast.AST) -> str | None:
    """Return the character between fields; None for spaces, of which a single one is a case."""
    if text in (None, " "):
        return None
    if isinstance(text, str) and len(text) == 1 and text not in "\r\n\"":
        return text
    raise NotNumbers(f"{ast.unparse(node)} splits at what is not one character")


def _item(of: LineValue, place: ast.expr, node: ast.Subscript) -> LineValue:
    if of.kind == "row" and isinstance(place, ast.Constant) and place.value == 0:
        return LineValue("line")
    if of.kind == "fields" and of.columns is None:
        match place:
            case ast.Constant(value=int(number)):
                return LineValue("field", of.delimiter, (number,))
            case ast.Slice(lower=None | ast.Constant(), upper=ast.Constant(value=int(end)), step=None):
                start = place.lower.value if isinstance(place.lower, ast.Constant) else 0
                if isinstance(start, int) and 0 <= start < end:
                    return replace(of, columns=tuple(range(start, end)))
            case ast.Slice(step=None):
                raise NotNumbers(f"{ast.unparse(node)} is of fields whose number is not known: columns= of "
                                 "vispark.read_text names them")
    raise _unknown(node)


def _joined(values: list[LineValue], kind: str, node: ast.expr) -> LineValue:
    if any(each.kind != "number" or each.columns is None for each in values):
        raise _unknown(node)
    if len({(each.delimiter, each.dtype) for each in values}) > 1:
        raise NotNumbers(f"{ast.unparse(node)} has numbers of several types")
    columns = tuple([number for each in values for number in each.columns or ()])
    return replace(values[0], kind=kind, columns=columns)


def _unknown(node: ast.AST) -> NotNumbers:
    text = " ".join(ast.unparse(node).split())
    return NotNumbers(f"{text if len(text) <= 60 else text[:57] + '...'} is not known to be numbers of a line's fields")
