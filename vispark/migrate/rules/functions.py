"""Function objects of a program's source, made without running the program, and the translator's verdict on each.

Imports, functions, classes and literal assignments of the module are executed, and nothing else of it. An expression
that is a function is compiled at its own place inside a function whose parameters are its free names, so that the
translator finds its source. Free names get stand-ins; so a verdict says that the translator reads the function, not
that it goes with the types of the data.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.migrate.source.program import SourceProgram
from vispark.plan.fold.aggregation import aggregation_of
from vispark.plan.fold.spec import FoldSpec, fold_of
from vispark.translate import TranslationError, trace

#: Raised by the user's imports and definitions; each is a reason, and the program goes on.
OF_THE_USER = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError,
                RuntimeError, SyntaxError, TypeError, ValueError, SystemExit)

#: Stand-ins for values that only a run has, in the order in which they are tried.
_STAND_INS: tuple[Any, ...] = (np.zeros((3, 3)), 2.0, 2, types.SimpleNamespace(value=np.zeros((3, 3))))

#: The most characters of a reason.
_LONGEST = 200

_Definition = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class NoFunction(Exception):
    """An expression of which no function can be made without running the program, and why."""


@dataclass(frozen=True)
class Verdict:
    """The translator's verdict on a function.

    Attributes
    ----------
    is_read : bool
        Whether it reads the function.
    reason : str
        Why not, in the translator's words and in one line; or the fold's name.
    line : int
        The line of the reason, 0 if there is none.
    file : str
        The file of that line.
    stays : str
        Why a port has a filter as a Spark job although its function is read.
    of : str
        What ``vmap`` is to be told of the records.
    """

    is_read: bool
    reason: str = ""
    line: int = 0
    stays: str = ""
    of: str = ""
    file: str = ""


class FunctionMaker:
    """Maker of function objects from a program's source.

    Parameters
    ----------
    program : SourceProgram
    imports : bool
        Whether the module's imports and definitions may be executed, which is code of the user's.

    Examples
    --------
    >>> maker = FunctionMaker(SourceProgram("job.py", "k = 3\\nf = lambda x: x * k + w\\n"))
    >>> maker.verdict(maker.program.tree.body[1].value, "map")
    Verdict(is_read=True, reason='', line=0, ...)
    """

    def __init__(self, program: SourceProgram, imports: bool = True):
        self.program, self.imports = program, imports
        #: What could not be executed, and why.
        self.failed: list[str] = []
        self.names: dict[str, Any] = {"__name__": "__vispark_qualify__", "__file__": program.file,
                                      "__builtins__": builtins}
        #: Names of the module that only a run has, which its functions may use.
        self.computed: set[str] = set()
        #: Names of definitions that could not be executed, of which nothing is known.
        self.missing: set[str] = set()
        lines = program.source.splitlines(keepends=True)
        linecache.cache[program.file] = (len(program.source), None, lines, program.file)
        if imports:
            self._execute()

    def _execute(self) -> None:
        folder = os.path.dirname(os.path.abspath(self.program.file))
        sys.path.insert(0, folder)
        try:
            for statement in _definitions(self.program.tree.body):
                self._execute_one(statement)
        finally:
            sys.path.remove(folder)
        self.computed = names_at_top(self.program.tree) - self.names.keys()

    def _execute_one(self, statement: ast.stmt) -> None:
        code = compile(ast.Module([statement], []), self.program.file, "exec", dont_inherit=True)
        if isinstance(statement, ast.Assign) and not _is_literal(statement.value):
            self._alias(statement, code)
            return
        try:
            exec(code, self.names)
        except OF_THE_USER as error:
            self.failed.append(f"line {statement.lineno} could not be executed: {type(error).__name__}: {error}")
            self.missing |= _defined_by(statement)

    def _alias(self, statement: ast.Assign, code: types.CodeType) -> None:
        """Give a type, a function or a module its other name; what is none of these is left to a run."""
        names = dict(self.names)
        with suppress(*OF_THE_USER):
            exec(code, names)
            for target in statement.targets:
                value = names[ast.unparse(target)]
                if isinstance(value, type | types.ModuleType | np.ufunc) or callable(value) \
                        or typing.get_origin(value) is not None:
                    self.names[ast.unparse(target)] = value

    def function(self, node: ast.expr, stand_in: Any) -> Callable[..., Any]:
        """Return the function that an expression is, with one value for all names that only a run has.

        Raises
        ------
        NoFunction
            If the program's imports are not to be executed, or the expression fails without a run.
        """
        if not self.imports:
            raise NoFunction("not asked: its module's imports are not executed (--no-import)")
        inner = self._inner_functions(node)
        free = sorted(self._free([node, *inner]))
        maker = ast.FunctionDef(name="__made__", args=ast.arguments([], [ast.arg(name) for name in free], None, [], [],
                                                                    None, []),
                                body=[*inner, ast.copy_location(ast.Return(node), node)], decorator_list=[])
        if sys.version_info >= (3, 12):
            maker.type_params = []
        ast.copy_location(maker, node)
        module = ast.fix_missing_locations(ast.Module([maker], []))
        names = dict(self.names)
        try:
            exec(compile(module, self.program.file, "exec", dont_inherit=True), names)
            function = names["__made__"](*[stand_in] * len(free))
        except OF_THE_USER as error:
            raise NoFunction(f"not known without a run ({type(error).__name__}: {error})") from error
        if not callable(function) or function is stand_in:
            raise NoFunction("not known without a run: the name of a value that the program computes")
        return function

    def verdict(self, node: ast.expr, method: str) -> Verdict | None:
        """Return the translator's verdict on the function of an operation; None where it cannot be made."""
        worst: Verdict | None = None
        if self._used(node) & self.missing:
            return None
        for stand_in in _STAND_INS:
            self.names.update(dict.fromkeys(self.computed, stand_in))
            try:
                function = self.function(node, stand_in)
                verdict = fold_verdict(function) if method in FOLDS else map_verdict(function)
            except NoFunction:
                continue
            finally:
                for name in self.computed:
                    self.names.pop(name, None)
            if verdict.is_read:
                return verdict
            worst = worst or verdict
        return worst

    def _used(self, node: ast.expr) -> set[str]:
        """Return the names that an expression uses, and those of the program's functions among these."""
        used, todo = set[str](), list[ast.AST]([node])
        while todo:
            names = {each.id for each in ast.walk(todo.pop()) if isinstance(each, ast.Name)} - used
            used |= names
            todo += [self.program.functions[name] for name in names & self.program.functions.keys()]
        return used

    def _inner_functions(self, node: ast.expr) -> list[ast.stmt]:
        """Return the functions that are defined in the functions around an expression."""
        functions: list[ast.stmt] = []
        for around in self.program.around(node):
            if isinstance(around, ast.FunctionDef):
                functions += [each for each in ast.walk(around) if isinstance(each, ast.FunctionDef)
                              and each is not around and self.program.scope_of(each) is around]
        return functions

    def _free(self, nodes: list[ast.AST]) -> set[str]:
        loaded: set[str] = set()
        bound = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
        for node in nodes:
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    (loaded if isinstance(part.ctx, ast.Load) else bound).add(part.id)
                elif isinstance(part, ast.arg):
                    bound.add(part.arg)
                elif isinstance(part, ast.FunctionDef):
                    bound.add(part.name)
        return loaded - bound - self.names.keys() - set(dir(builtins))


#: Operations whose function joins two records.
FOLDS = frozenset(["reduce", "treeReduce", "reduceByKey", "fold", "foldByKey", "reduceByKeyLocally", "aggregate",
                   "treeAggregate"])
#: Those that a port has in the workers by key.
FOLDS_BY_KEY = frozenset(["reduceByKey", "foldByKey"])


def map_verdict(function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Verdict:
    """Return whether the translator reads a function of a record, and if not, why.

    Examples
    --------
    >>> map_verdict(print).is_read
    False
    """
    try:
        trace(function, arguments)
    except TranslationError as error:
        return Verdict(False, first_line(error.message), error.line, file=error.file)
    return Verdict(True)


def fold_verdict(function: Callable[..., Any]) -> Verdict:
    """Return whether a function of two records is a fold that workers have, and its name or the reason.

    Examples
    --------
    >>> fold_verdict(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    Verdict(is_read=True, reason='(add, add)', line=0, ...)
    """
    fold = fold_of(function)
    return Verdict(True, fold.label) if isinstance(fold, FoldSpec) else Verdict(False, first_line(fold))


def aggregate_verdict(step: Callable[..., Any], combine: Callable[..., Any]) -> Verdict:
    """Return whether ``aggregate`` with two functions is a fold that workers have, and its name or the reason.

    Examples
    --------
    >>> aggregate_verdict(lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    Verdict(is_read=True, reason='(add, add)', line=0, ...)
    """
    aggregation = aggregation_of(step, combine)
    if isinstance(aggregation, str):
        return Verdict(False, first_line(aggregation))
    return Verdict(True, aggregation.fold.label)


def first_line(message: str) -> str:
    """Return the first line of a message, without its last clauses where it is very long.

    Examples
    --------
    >>> first_line("a is not supported\\n  File x")
    'a is not supported'
    """
    line = message.partition("\n")[0].strip()
    return line if len(line) <= _LONGEST else line[:_LONGEST].rpartition(";")[0] or line[:_LONGEST - 3] + "..."


def _definitions(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that define names without computing, those under ``if __name__ == ...`` among them."""
    for statement in statements:
        if isinstance(statement, _Definition):
            yield statement
        elif isinstance(statement, ast.If | ast.Try):
            yield from _definitions(statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None and (
                _is_literal(statement.value) or (isinstance(statement, ast.Assign) and _is_alias(statement))):
            yield statement


def _defined_by(statement: ast.stmt) -> set[str]:
    """Return the names that an import, or the definition of a function or a class, gives a module."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.partition(".")[0] for each in statement.names}
    return {statement.name} if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else set()


def _is_alias(statement: ast.Assign) -> bool:
    """Return whether a statement may give another name to something, as ``np.ndarray`` or ``tuple[Point, int]``."""
    node = statement.value
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and all(isinstance(target, ast.Name) for target in statement.targets)


def names_at_top(tree: ast.Module) -> set[str]:
    """Return the names that a module assigns outside of functions and classes.

    Examples
    --------
    >>> sorted(names_at_top(ast.parse("a = b = f()\\nif a:\\n    for c, d in a:\\n        e += 1\\ndef g(): h = 1")))
    ['a', 'b', 'c', 'd', 'e']
    """
    names, todo = set[str](), list[ast.AST](tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.ListComp
                            | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            todo += ast.iter_child_nodes(node)
    return names


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
