"""Checks of a function before types are known: results that are none, names without a value, a choice of functions.

This looks at the intermediate form alone, before any type is known. A test on the element is decided while the kernel
runs, so both ways count; any other may be decided before, by an argument or a shape, and then what stands in it is left
to the types. What is doubtful passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.liveness import NameSet
from vispark.translate.ir.source_text import complain

#: Functions that give a number of the element where they are given one.
_NUMBERS = ("int", "float", "abs", "round", "bool", "sum", "min", "max", "math.", "numpy.sum", "numpy.min", "numpy.max",
            "numpy.mean", "numpy.dot", "numpy.exp", "numpy.sqrt", "numpy.abs", "numpy.linalg.norm", "numpy.argm")
_METHODS = ("sum", "min", "max", "mean", "dot", "any", "all", "argmin", "argmax")
#: Reason for which a record has no list in it.
LIST_RETURNED = "a list cannot be a record or a part of one; make it an array, np.array([...]), or a tuple"
_IDENTITY = ("is", "is not", "in", "not in")


def check(definition: nodes.Definition) -> None:
    """Refuse a function of the element that is wrong for elements of any type.

    Raises
    ------
    TranslationError
        At the place in the function.
    """
    if not definition.parameters:
        raise complain(f"{definition.name} has no parameter for the element", definition.at, definition.text,
                       definition.name)
    _Check(definition).whole()


class _Check:
    """One function, gone through from its first statement on."""

    def __init__(self, definition: nodes.Definition):
        self.definition = definition
        self.bindings = dict(_bindings(definition.body))
        self.bound = liveness.assigned(definition.body) | {each.name for each in definition.parameters}
        self.mutated = {root.name for target in _stored_items(definition.body)
                        if isinstance(root := _root(target), nodes.Local)}
        first = definition.parameters[0]
        self.of_element: NameSet = frozenset() if first.many or first.name in self.bindings else frozenset({first.name})
        while True:
            names = self.of_element | {name for name, values in self.bindings.items()
                                       if all(value is not None and self.runs(value) for value in values)
                                       and name not in {each.name for each in definition.parameters}}
            if names == self.of_element:
                break
            self.of_element = names

    def whole(self) -> None:
        returned = [one.value for one, _ in liveness.statements(self.definition.body) if isinstance(one, nodes.Return)]
        if all(value == nodes.Literal(None) for value in returned):
            self.refuse(self.definition, f"{self.definition.name} returns nothing; a translated function returns its "
                                         "element's result")
        after = self.block(self.definition.body, frozenset(each.name for each in self.definition.parameters))
        if after is not None:
            self._none_on_some_ways(self.definition)

    def _none_on_some_ways(self, at: nodes.Node | nodes.Definition) -> None:
        self.refuse(at, f"{self.definition.name} returns a value on some ways and none on others; return one on each")

    def refuse(self, at: nodes.Node | nodes.Definition, message: str) -> None:
        raise complain(message, at.at, self.definition.text, self.definition.name)

    # -- what the element decides -------------------------------------------------------------------------------------

    def runs(self, node: nodes.Expression) -> bool:
        """Return whether an expression is surely a number or an array that is known only as the kernel runs."""
        match node:
            case nodes.Local(name):
                return name in self.of_element
            case nodes.Unary(_, operand):
                return self.runs(operand)
            case nodes.Binary(_, left, right):
                return self.runs(left) or self.runs(right)
            case nodes.Compare(first, operators, others):
                return not set(operators) & set(_IDENTITY) and any(map(self.runs, (first, *others)))
            case nodes.Logical(_, operands):
                return all(map(self.runs, operands))
            case nodes.Index(value, _):
                return self.runs(value)
            case nodes.Call(nodes.Library(name), arguments):
                return name.startswith(_NUMBERS) and any(map(self.runs, arguments))
            case nodes.Call(nodes.Attribute(value, name), _):
                return name in _METHODS and self.runs(value)
        return False

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, body: nodes.Statements, known: NameSet) -> NameSet | None:
        """Return the names that may have a value after a block, where it may be gone on from."""
        for statement in body:
            after = self.statement(statement, known)
            if after is None:
                return None
            known = after
        return known

    def statement(self, statement: nodes.Statement, known: NameSet) -> NameSet | None:
        match statement:
            case nodes.Assign(targets, value):
                self.expression(value, known)
                for target in targets:
                    self.target(target, value if len(targets) == 1 else None, known)
                return known.union(*map(liveness.stored, targets))
            case nodes.Augment(target, _, value):
                self.expression(value, known)
                self.expression(target, known)
                self.target(target, None, known)
                return known
            case nodes.If():
                return self._either(statement, known)
            case nodes.For() | nodes.While():
                return self._repeated(statement, known)
            case nodes.Return(value):
                self.expression(value, known)
                self.result(value)
        return None

    def _either(self, statement: nodes.If, known: NameSet) -> NameSet | None:
        self.expression(statement.test, known)
        if not self.runs(statement.test):
            # Only one of them may ever be taken: what is in it is left to the types.
            after = _OptimisticNames(self).block((statement,), known)
            return after
        ways = [self.block(part, known) for part in (statement.body, statement.orelse)]
        going = [names for names in ways if names is not None]
        if not going:
            return None
        if len(going) == 2:
            self._chosen_functions(statement)
        return frozenset.intersection(*going)

    def _chosen_functions(self, statement: nodes.If) -> None:
        """Refuse a name that stands for one function on one branch and for another on the other."""
        yes, no = ({target.name: one.value for one in part if isinstance(one, nodes.Assign)
                    for target in one.targets if isinstance(target, nodes.Local)}
                   for part in (statement.body, statement.orelse))
        for name in yes.keys() & no.keys():
            if _is_function(yes[name]) and _is_function(no[name]) and yes[name] != no[name]:
                self.refuse(no[name], _CHOSEN)

    def _repeated(self, statement: nodes.For | nodes.While, known: NameSet) -> NameSet | None:
        if isinstance(statement, nodes.For):
            self.expression(statement.iterable, known)
            begun = known | liveness.stored(statement.target)
            match statement.iterable:
                case nodes.Call(nodes.Library("range"), bounds):
                    sure = not any(map(self.runs, bounds))
                case _:
                    sure = True
        else:
            begun, sure = known, not self.runs(statement.test)
        # A turn may read what the turn before it left.
        self.block(statement.body, begun | liveness.assigned(statement.body))
        at_best = _OptimisticNames(self).block((statement,), known)
        return at_best if sure or at_best is None or statement.orelse else known

    # -- expressions --------------------------------------------------------------------------------------------------

    def target(self, target: nodes.Expression, value: nodes.Expression | None, known: NameSet) -> None:
        """Check an assignment's target: an item of a list, or of a possible view of another array, is refused."""
        root = _root(target)
        if isinstance(target, nodes.Index) and isinstance(root, nodes.Local):
            self.expression(target, known)
            listed = self.bindings.get(root.name, [])
            if listed and isinstance(target.value, nodes.Local) and \
                    all(map(_is_list, listed)):
                self.refuse(target, "only the items of an array that the function made can be assigned to, with "
                                    f"np.zeros(n), np.array([...]) or .copy(); {root.name} is a list")
        if isinstance(target, nodes.Local) and target.name in self.mutated and value is not None and _is_view(value):
            self.refuse(target, f"{target.name} is written to and would be a view of another array, which would change "
                                "too; write .copy() here")

    def expression(self, node: object, known: NameSet) -> None:
        """Look at an expression, and all that it is made of."""
        match node:
            case nodes.Local(name) if name not in known and name in self.bound:
                self.refuse(node, f"{name} may have no value here: give it one on every way that leads here")
            case nodes.Called():
                return
            case nodes.Each() | nodes.Listed():
                self.expression(node.iterable, known)
                inside = known | liveness.stored(node.target)
                self.expression((node.value, *node.conditions), inside)
                return
            case nodes.Compare(first, operators, others) if {"is", "is not"} & set(operators) \
                    and all(map(self.runs, (first, *others))):
                self.refuse(node, "is compares with None only; write == for numbers")
            case nodes.Choice(test, yes, no) if (self.runs(test) and _is_function(yes) and _is_function(no)
                                                 and yes != no):
                self.refuse(node, _CHOSEN)
            case nodes.Choice(test) | nodes.Logical(_, (test, *_)):
                # What is evaluated only sometimes may be decided before.
                self.expression(test, known)
                return
        for part in _parts(node):
            self.expression(part, known)

    def result(self, value: nodes.Expression) -> None:
        """Refuse returned values that are no results whatever their types."""
        match value:
            case nodes.Literal(None):
                self._none_on_some_ways(value)
            case nodes.TupleOf(()):
                self.refuse(value, "an empty tuple cannot be returned")
            case nodes.TupleOf(items) | nodes.DictOf(_, items):
                for item in items:
                    if item == nodes.Literal(None):
                        self.refuse(item, "None cannot be part of a result")
                    self.result(item)
            case nodes.ListOf():
                self.refuse(value, LIST_RETURNED)
            case nodes.Local(name) if self.bindings.get(name) and all(
                    isinstance(one, nodes.ListOf) for one in self.bindings[name]):
                self.refuse(value, f"{name} is a list, which cannot be returned; make it an array, np.array({name})")
            case nodes.Choice(test, yes, no) if self.runs(test):
                for one in (yes, no):
                    if one == nodes.Literal(None):
                        self._none_on_some_ways(one)
                    self.result(one)


class _OptimisticNames:
    """Optimistic analysis of a block: the names of all branches that may be chosen before the kernel runs."""

    def __init__(self, check: _Check):
        self.check = check

    def block(self, body: nodes.Statements, known: NameSet) -> NameSet | None:
        for statement in body:
            match statement:
                case nodes.Return() | nodes.Break() | nodes.Continue():
                    return None
                case nodes.If(test, yes, no):
                    ways = [self.block(yes, known), self.block(no, known)]
                    if None in ways and not (self.check.runs(test) and ways != [None, None]):
                        return None
                    known = known.union(*(names for names in ways if names is not None))
                case nodes.For() | nodes.While():
                    within = self.block(statement.body, known)
                    if liveness.returns(statement.body) and (within is None or liveness.leaves((statement,))):
                        return None
                    known |= liveness.assigned((statement,))
                    if self.block(statement.orelse, known) is None and not liveness.breaks_out(statement.body):
                        return None
                case _:
                    known |= liveness.assigned((statement,))
        return known


_CHOSEN = ("a function cannot be chosen while the kernel runs; call both, and choose of what they give: "
           "math.sin(x) if test else math.cos(x)")


def _is_function(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.Library | nodes.Called)


def _is_list(node: nodes.Expression | None) -> bool:
    return isinstance(node, nodes.ListOf | nodes.Listed) or (
        isinstance(node, nodes.Binary) and node.operator == "*" and isinstance(node.left, nodes.ListOf))


def _is_view(node: nodes.Expression) -> bool:
    """Return whether an array expression is a view of another array."""
    if isinstance(node, nodes.Index):
        return any(isinstance(index, nodes.Slice) for index in node.indices)
    return isinstance(node, nodes.Local)


def _root(node: nodes.Expression) -> nodes.Expression:
    while isinstance(node, nodes.Index):
        node = node.value
    return node


def _parts(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, nodes.Expression):
        yield from (part for name, part in vars(node).items() if name != "at")


def _stored_items(body: nodes.Statements) -> Iterator[nodes.Index]:
    """Yield the items of arrays that a block assigns to."""
    for statement, _ in liveness.statements(body):
        targets = statement.targets if isinstance(statement, nodes.Assign) else \
            (statement.target,) if isinstance(statement, nodes.Augment) else ()
        yield from (target for target in targets if isinstance(target, nodes.Index))


def _bindings(body: nodes.Statements) -> dict[str, list[nodes.Expression | None]]:
    """Return the expressions that each name is bound to; None stands for bindings that are not analysed."""
    bindings: dict[str, list[nodes.Expression | None]] = {}
    for statement, _ in liveness.statements(body):
        if isinstance(statement, nodes.Assign):
            for target in statement.targets:
                for name in liveness.stored(target):
                    bindings.setdefault(name, []).append(statement.value if isinstance(target, nodes.Local) else None)
        elif isinstance(statement, nodes.For):
            for name in liveness.stored(statement.target):
                bindings.setdefault(name, []).append(None)
    return bindings
