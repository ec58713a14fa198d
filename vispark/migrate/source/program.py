"""Operations of RDDs in a program's source, by its syntax tree: where they stand, on what, and in which loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vispark.migrate.errors import SourceError
from vispark.migrate.source.class_members import ClassMembers, is_place
from vispark.migrate.source.edits import Edit, SourceBytes
from vispark.migrate.source.notebooks import SUFFIX, is_notebook, script_of

#: Methods of a SparkContext that make an RDD.
SOURCES = frozenset([
    "parallelize", "textFile", "wholeTextFiles", "binaryFiles", "binaryRecords", "pickleFile", "sequenceFile",
    "newAPIHadoopFile", "newAPIHadoopRDD", "hadoopFile", "hadoopRDD", "emptyRDD", "read_text"])
#: Methods of an RDD that give an RDD.
TRANSFORMATIONS = frozenset([
    "map", "flatMap", "filter", "mapPartitions", "mapPartitionsWithIndex", "mapValues", "flatMapValues", "keyBy",
    "distinct", "sample", "union", "intersection", "subtract", "subtractByKey", "cartesian", "zip", "zipWithIndex",
    "zipWithUniqueId", "glom", "groupBy", "groupByKey", "reduceByKey", "foldByKey", "aggregateByKey", "combineByKey",
    "join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "cogroup", "groupWith", "partitionBy", "repartition",
    "coalesce", "sortBy", "sortByKey", "repartitionAndSortWithinPartitions", "keys", "values", "cache", "persist",
    "unpersist", "setName", "barrier", "vmap", "send", "htod", "sampleByKey", "pipe"])
#: Methods of an RDD that run a job, or give something else than an RDD.
ACTIONS = frozenset([
    "collect", "collectAsMap", "count", "countByKey", "countByValue", "countApprox", "first", "fold", "foreach",
    "foreachPartition", "histogram", "isEmpty", "lookup", "max", "mean", "min", "reduce", "reduceByKeyLocally",
    "saveAsTextFile", "saveAsPickleFile", "stats", "stdev", "sum", "take", "takeOrdered", "takeSample",
    "toLocalIterator", "top", "treeAggregate", "treeReduce", "aggregate", "variance", "checkpoint", "localCheckpoint"])
#: Methods that lists, arrays, strings and DataFrames do not have: what they are called on is an RDD.
UNMISTAKABLE = frozenset([
    "flatMap", "mapPartitions", "mapPartitionsWithIndex", "mapValues", "flatMapValues", "keyBy", "zipWithIndex", "glom",
    "groupByKey", "reduceByKey", "foldByKey", "aggregateByKey", "combineByKey", "leftOuterJoin", "rightOuterJoin",
    "fullOuterJoin", "partitionBy", "sortByKey", "collectAsMap", "countByKey", "countByValue", "reduceByKeyLocally",
    "saveAsTextFile", "takeOrdered", "takeSample", "treeAggregate", "treeReduce"])
#: Actions of DataFrames: their results are no DataFrames.
_OF_FRAMES = frozenset(["collect", "count", "first", "head", "take", "toPandas", "show", "write", "columns", "schema"])

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
LoopStatement = ast.For | ast.While
_BRANCHES = (ast.If, ast.Try, ast.For, ast.While)


@dataclass(frozen=True)
class SourcePart:
    """File of a program: its text, and the number of lines before it in the program's source."""

    file: str
    source: str
    first: int = 0


@dataclass(frozen=True, eq=False)
class RddCall:
    """A call of an RDD's method in a source.

    Attributes
    ----------
    node : ast.Call
        The call; ``node.func`` is the attribute.
    loops : tuple
        The loops around it in its function, the outermost first.
    """

    node: ast.Call
    scope: Scope
    loops: tuple[LoopStatement, ...]

    @property
    def attribute(self) -> ast.Attribute:
        """The method, and what it is called on."""
        assert isinstance(self.node.func, ast.Attribute)
        return self.node.func

    @property
    def method(self) -> str:
        """The method's name."""
        return self.attribute.attr

    @property
    def line(self) -> int:
        """The line of the method's name, which is the one that Spark's call sites have."""
        return self.attribute.end_lineno or self.node.lineno

    @property
    def column(self) -> int:
        """The place of the method's name in its line, in bytes of UTF-8, from 1."""
        return (self.attribute.end_col_offset or 0) - len(self.method.encode()) + 1


class SourceProgram:
    """A program's source with its operations of RDDs; nothing of it runs.

    Parameters
    ----------
    file : str
        Its path, for messages and call sites.
    text : str
        Its content.

    Raises
    ------
    SourceError
        If it is no Python; the message has the line.

    Examples
    --------
    >>> program = SourceProgram("job.py", "x = sc.parallelize(a).cache()\\nfor i in b:\\n    x.map(f).sum()\\n")
    >>> [(call.method, call.line, len(call.loops)) for call in program.calls]
    [('parallelize', 1, 0), ('cache', 1, 0), ('map', 3, 1), ('sum', 3, 1)]
    """

    def __init__(self, file: str, text: str):
        self.file, self.source = file, text
        self.parts: tuple[SourcePart, ...] = (SourcePart(file, text),)
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            place = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise SourceError(f"{file}{place} is no Python: "
                              f"{getattr(error, 'msg', error)}") from error
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._kinds: dict[ast.AST, str] = {}
        self.members = ClassMembers(self.tree, self.parent)

    @classmethod
    def read(cls, path: Path) -> SourceProgram:
        """Return the program of a file, or of a notebook's cells.

        Raises
        ------
        SourceError
            If it cannot be read.
        """
        if path.suffix == SUFFIX:
            return cls(str(path), script_of(path))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SourceError(f"{path} is not UTF-8: byte {error.start}") from error
        if is_notebook(text):
            raise SourceError(f"{path} is a notebook by what it holds: name it {path.with_suffix(SUFFIX).name}")
        return cls(str(path), text)

    # -- the tree -----------------------------------------------------------------------------------------------------

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node around a node."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def located(self, line: int) -> tuple[str, int]:
        """Return the file of a line, and its number there."""
        return self.file, line

    def where(self, line: int) -> str:
        """Return the place of a line in words."""
        return f"line {line}"

    def edited(self, edits: list[Edit]) -> dict[str, str]:
        """Return the changed sources by file.

        Raises
        ------
        SourceError
            If two edits meet, or the result is no Python.
        """
        return {self.file: SourceBytes(self.source).edited(edits)}

    def called(self, node: ast.AST) -> ast.FunctionDef | None:
        """Return the function of the program that a call is of, by its name."""
        return self.functions.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
            else None

    def scope_of(self, node: ast.AST) -> Scope:
        """Return the function around a node, or the module."""
        return next((each for each in self.around(node)
                     if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)), self.tree)

    def text_of(self, node: ast.AST) -> str:
        """Return the source of a node."""
        return ast.get_source_segment(self.source, node) or ""

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Functions of the file by their names; of several of one name the last."""
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}

    @cached_property
    def calls(self) -> tuple[RddCall, ...]:
        """Calls of RDDs' methods, in the order of their places."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self._is_of_rdd(node)]
        nodes.sort(key=lambda node: (node.func.end_lineno, node.func.end_col_offset))
        return tuple([RddCall(node, self.scope_of(node), self._loops_around(node)) for node in nodes])

    @cached_property
    def call_of(self) -> dict[ast.AST, RddCall]:
        """The calls by their nodes."""
        return {call.node: call for call in self.calls}

    def _is_of_rdd(self, node: ast.Call) -> bool:
        if not isinstance(node.func, ast.Attribute) or any(isinstance(each, ast.Lambda) for each in self.around(node)):
            return False
        method, on = node.func.attr, node.func.value
        if method in SOURCES:
            return method != "read_text" or self.kind(on) == "vispark"
        if method not in TRANSFORMATIONS | ACTIONS:
            return method == "range" and self.kind(on) == "context"
        return self.kind(on) == "rdd" or (method in UNMISTAKABLE and self.kind(on) == "unknown")

    def _loops_around(self, node: ast.AST) -> tuple[LoopStatement, ...]:
        loops: list[LoopStatement] = []
        inner: ast.AST = node
        for outer in self.around(node):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            # What a loop goes over is made once.
            if isinstance(outer, ast.While) or (isinstance(outer, ast.For) and inner is not outer.iter):
                loops.append(outer)
            inner = outer
        return tuple(reversed(loops))

    # -- what an expression is ----------------------------------------------------------------------------------------

    def kind(self, node: ast.AST) -> str:
        """Return the kind of an expression: "rdd", "frame", "context", "session", "reader", "vispark", "local" or
        "unknown".
        """
        if node not in self._kinds:
            self._kinds[node] = "unknown"      # for those that depend on themselves
            self._kinds[node] = self._kind(node)
        return self._kinds[node]

    def _kind(self, node: ast.AST) -> str:
        match node:
            case ast.Attribute(attr="rdd"):
                return "rdd"
            case ast.Attribute(attr="sparkContext" | "_sc"):
                return "context"
            case ast.Attribute(attr="read" | "readStream"):
                return "reader"
            case ast.Call() if (function := self.called(node) or self._method_of(node)) is not None:
                return self._any(self.returned(function))
            case ast.Call(func=ast.Attribute(value=on, attr=method)):
                return self._kind_of_result(self.kind(on), method)
            case ast.Attribute():
                return self._any(self.members.values_of(node))
            case ast.Call(func=ast.Name(id="SparkContext")):
                return "context"
            case ast.Name(id="vispark"):
                return "vispark"
            case ast.Name():
                return self._any(self.values_of(node)) if node.id not in ("sc", "spark") or self.values_of(node) else \
                    {"sc": "context", "spark": "session"}[node.id]
            case ast.IfExp(body=one, orelse=other):
                return self._any([one, other])
            case ast.Constant() | ast.List() | ast.Dict() | ast.JoinedStr() | ast.BinOp() | ast.ListComp():
                return "local"
        return "unknown"

    def _method_of(self, node: ast.Call) -> ast.FunctionDef | None:
        """Return the method of the file's own that is called, unless it is called on an RDD."""
        method = self.members.method_of(node)
        if method is None or not isinstance(node.func, ast.Attribute) or self.kind(node.func.value) != "unknown":
            return None
        return method

    def _any(self, nodes: list[ast.expr]) -> str:
        # The first is the likeliest; one that depends on itself, as in a loop, is asked for last or not at all.
        kinds = set()
        for node in nodes:
            kinds.add(kind := self.kind(node))
            if kind == "rdd":
                return kind
        return next((each for each in ("frame", "context", "session", "reader", "unknown") if each in kinds),
                    "local" if kinds else "unknown")

    @staticmethod
    def _kind_of_result(on: str, method: str) -> str:
        # A pathlib.Path has a read_text, too.
        if method in SOURCES and (method != "read_text" or on == "vispark"):
            return "rdd"
        if method == "getOrCreate":
            return "session" if on != "context" else on
        if on == "rdd" or (on == "unknown" and method in UNMISTAKABLE):
            return "rdd" if method in TRANSFORMATIONS else "frame" if method == "toDF" else "local"
        if on == "frame":
            return "local" if method in _OF_FRAMES else "frame"
        if on == "reader":
            return "reader" if method in ("format", "option", "options", "schema") else "frame"
        if on == "context":
            return "rdd" if method in ("range", "union") else "local"
        if on == "session" or method in ("createDataFrame", "from_dataframe"):
            return "rdd" if method == "from_dataframe" else \
                "frame" if method in ("createDataFrame", "sql", "table", "range") else "unknown"
        return "unknown"

    def returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """Return the expressions that a function returns."""
        return [each.value for each in ast.walk(function) if isinstance(each, ast.Return) and each.value is not None
                and self.scope_of(each) is function]

    # -- names --------------------------------------------------------------------------------------------------------

    @cached_property
    def _assigned(self) -> dict[tuple[Scope, str], list[tuple[ast.stmt, ast.expr]]]:
        assigned: dict[tuple[Scope, str], list[tuple[ast.stmt, ast.expr]]] = {}
        for node in ast.walk(self.tree):
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign):
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) \
                        and len(target.elts) == len(value.elts):
                    parts: list[tuple[ast.expr, ast.expr | None]] = list(zip(target.elts, value.elts, strict=True))
                else:
                    parts = [(target, value)]
                for one, of in parts:
                    if isinstance(one, ast.Name) and of is not None and isinstance(node, ast.stmt):
                        assigned.setdefault((self.scope_of(node), one.id), []).append((node, of))
        for statements in assigned.values():
            statements.sort(key=lambda pair: (pair[0].lineno, pair[0].col_offset))
        return assigned

    def values_of(self, name: ast.Name) -> list[ast.expr]:
        """Return the expressions that a name may stand for at its place, the likeliest first.

        That is the assignment before it in its function, those before that one where it may not have run, and those
        behind it in a loop around both; for a parameter, what callers of the file give.
        """
        scope = self.scope_of(name)
        while (scope, name.id) not in self._assigned and not isinstance(scope, ast.Module):
            if passed := self._given(scope, name.id):
                return passed
            scope = self.scope_of(scope)
        assigned = self._assigned.get((scope, name.id), [])
        if scope is not self.scope_of(name):
            return [value for _, value in reversed(assigned)]
        around = set(self.around(name))
        values: list[ast.expr] = []
        for statement, value in reversed(assigned):
            if (statement.lineno, statement.col_offset) < (name.lineno, name.col_offset) and statement not in around:
                values.append(value)
                if not any(isinstance(each, _BRANCHES) and each not in around for each in self.around(statement)):
                    break
        else:
            # A parameter is what callers give until something is assigned to it.
            values += self._given(scope, name.id)
        later = [value for statement, value in assigned if value not in values
                 and any(isinstance(each, ast.For | ast.While) and each in around for each in self.around(statement))]
        return [*values, *later]

    def is_assigned(self, name: ast.Name) -> bool:
        """Return whether something is assigned to a name in its own scope."""
        return (self.scope_of(name), name.id) in self._assigned

    def is_parameter(self, name: ast.Name) -> bool:
        """Return whether a name is a parameter of its function that nothing is assigned to."""
        return not self.is_assigned(name) and bool(self._given(self.scope_of(name), name.id))

    def _given(self, scope: Scope, name: str) -> list[ast.expr]:
        """Return the arguments that calls in the file give for a parameter."""
        if not isinstance(scope, ast.FunctionDef):
            return []
        names = [each.arg for each in (*scope.args.posonlyargs, *scope.args.args)]
        if name not in names:
            return []
        number, values = names.index(name), list[ast.expr]()
        for call in self.members.calls_of(scope):
            values += [each.value for each in call.keywords if each.arg == name]
            values += call.args[number - 1:number] if number else []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and self.called(node) is scope:
                values += [each.value for each in node.keywords if each.arg == name]
                values += node.args[number:number + 1]
        return values

    # -- chains and loops ---------------------------------------------------------------------------------------------

    def before(self, call: RddCall) -> RddCall | None:
        """Return the call whose result a call is made on; None at a source, or where it is not known."""
        return self.made_by(call.attribute.value)

    def made_by(self, node: ast.expr, depth: int = 12) -> RddCall | None:
        """Return the call that makes what an expression is, along names and functions of the file."""
        return next(self.makers(node, depth), None)

    def makers(self, node: ast.expr, depth: int = 12) -> Iterator[RddCall]:
        """Yield the calls that may make what an expression is, the likeliest first; of a parameter, those of callers.
        """
        if node in self.call_of:
            yield self.call_of[node]
            return
        if depth == 0:
            return
        if isinstance(node, ast.Name):
            nodes = self.values_of(node)
        elif isinstance(node, ast.Call) and (function := self.called(node) or self._method_of(node)) is not None:
            nodes = self.returned(function)
        elif isinstance(node, ast.Attribute) and (values := self.members.values_of(node)):
            nodes = values
        elif isinstance(node, ast.Attribute | ast.Call):
            inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else \
                node.value if isinstance(node, ast.Attribute) else None
            nodes = [] if inner is None else [inner]
        else:
            nodes = []
        for maker in nodes:
            yield from self.makers(maker, depth - 1)

    def chain(self, call: RddCall) -> list[RddCall]:
        """Return the calls up to a call, the source first, the call itself last."""
        calls: list[RddCall] = []
        one: RddCall | None = call
        while one is not None and one not in calls:
            calls.append(one)
            one = self.before(one)
        return calls[::-1]

    def upstream(self, call: RddCall) -> set[RddCall]:
        """Return all calls that a call's result is made of, through both sides of joins, without the call itself."""
        calls: set[RddCall] = set()
        todo = [call]
        while todo:
            one = todo.pop()
            sources = [self.before(one), *[self.made_by(each) for each in one.node.args if self.kind(each) == "rdd"]]
            todo += [each for each in sources if each is not None and each not in calls]
            calls |= {each for each in sources if each is not None}
        return calls - {call}

    def loops(self) -> dict[LoopStatement, list[RddCall]]:
        """Return the innermost loops with the calls in them, those of functions called there among them."""
        within: dict[LoopStatement, list[RddCall]] = {}
        for call in self.calls:
            for loop in {call.loops[-1]} if call.loops else self._loops_that_call(call.scope, set()):
                within.setdefault(loop, []).append(call)
        return dict(sorted(within.items(), key=lambda pair: pair[0].lineno))

    def _loops_that_call(self, scope: Scope, seen: set[Scope]) -> set[LoopStatement]:
        """Return the innermost loops that call a function, directly or through others."""
        if not isinstance(scope, ast.FunctionDef) or scope in seen:
            return set()
        seen.add(scope)
        loops: set[LoopStatement] = set()
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self.called(node) is scope]
        for node in [*calls, *self.members.calls_of(scope)]:
            around = self._loops_around(node)
            loops |= {around[-1]} if around else self._loops_that_call(self.scope_of(node), seen)
        return loops

    def is_cached(self, call: RddCall) -> bool:
        """Return whether a call's result is kept: it is a ``cache``, or a name of it is cached for the effect."""
        if call.method in ("cache", "persist"):
            return True
        return any(each.method in ("cache", "persist") and is_place(each.attribute.value)
                   and self.before(each) is call for each in self.calls)


