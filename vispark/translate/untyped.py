"""What no data could make right in a function: results that are none, names without a value, a choice of functions.

This looks at the intermediate form alone, before any type is known. A test on the element is decided while the kernel
runs, so both ways count; any other may be decided before, by an argument or a shape, and then what stands in it is left
to the types. What is doubtful passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from vispark.translate import form, liveness
from vispark.translate.liveness import Names
from vispark.translate.text import complain

#: Functions that give a number of the element where they are given one.
_NUMBERS = ("int", "float", "abs", "round", "bool", "sum", "min", "max", "math.", "numpy.sum", "numpy.min", "numpy.max",
            "numpy.mean", "numpy.dot", "numpy.exp", "numpy.sqrt", "numpy.abs", "numpy.linalg.norm", "numpy.argm")
_METHODS = ("sum", "min", "max", "mean", "dot", "any", "all", "argmin", "argmax")
_IDENTITY = ("is", "is not", "in", "not in")


def check(definition: form.Definition) -> None:
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

    def __init__(self, definition: form.Definition):
        self.definition = definition
        self.bindings = dict(_bindings(definition.body))
        self.bound = liveness.assigned(definition.body) | {each.name for each in definition.parameters}
        self.mutated = {root.name for target in _stored_items(definition.body)
                        if isinstance(root := _root(target), form.Local)}
        first = definition.parameters[0]
        self.of_element: Names = frozenset() if first.many or first.name in self.bindings else frozenset({first.name})
        while True:
            found = self.of_element | {name for name, values in self.bindings.items()
                                       if all(value is not None and self.runs(value) for value in values)
                                       and name not in {each.name for each in definition.parameters}}
            if found == self.of_element:
                break
            self.of_element = found

    def whole(self) -> None:
        returned = [one.value for one, _ in liveness.statements(self.definition.body) if isinstance(one, form.Return)]
        if all(value == form.Literal(None) for value in returned):
            self.refuse(self.definition, f"{self.definition.name} returns nothing; a translated function returns its "
                                         "element's result")
        left = self.block(self.definition.body, frozenset(each.name for each in self.definition.parameters))
        if left is not None:
            self._none_on_some_ways(self.definition)

    def _none_on_some_ways(self, at: form.Node | form.Definition) -> None:
        self.refuse(at, f"{self.definition.name} returns a value on some ways and none on others; return one on each")

    def refuse(self, at: form.Node | form.Definition, message: str) -> None:
        raise complain(message, at.at, self.definition.text, self.definition.name)

    # -- what the element decides -------------------------------------------------------------------------------------

    def runs(self, node: form.Expression) -> bool:
        """Whether an expression is surely a number or an array that is known only as the kernel runs."""
        match node:
            case form.Local(name):
                return name in self.of_element
            case form.Unary(_, operand):
                return self.runs(operand)
            case form.Binary(_, left, right):
                return self.runs(left) or self.runs(right)
            case form.Compare(first, operators, others):
                return not set(operators) & set(_IDENTITY) and any(map(self.runs, (first, *others)))
            case form.Logical(_, operands):
                return all(map(self.runs, operands))
            case form.Index(value, _):
                return self.runs(value)
            case form.Call(form.Library(name), arguments):
                return name.startswith(_NUMBERS) and any(map(self.runs, arguments))
            case form.Call(form.Attribute(value, name), _):
                return name in _METHODS and self.runs(value)
        return False

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, body: form.Block, known: Names) -> Names | None:
        """The names that may have a value after a block, where it may be gone on from."""
        for statement in body:
            after = self.statement(statement, known)
            if after is None:
                return None
            known = after
        return known

    def statement(self, statement: form.Statement, known: Names) -> Names | None:
        match statement:
            case form.Assign(targets, value):
                self.expression(value, known)
                for target in targets:
                    self.target(target, value if len(targets) == 1 else None, known)
                return known.union(*map(liveness.stored, targets))
            case form.Augment(target, _, value):
                self.expression(value, known)
                self.expression(target, known)
                self.target(target, None, known)
                return known
            case form.If():
                return self._either(statement, known)
            case form.For() | form.While():
                return self._repeated(statement, known)
            case form.Return(value):
                self.expression(value, known)
                self.result(value)
        return None

    def _either(self, statement: form.If, known: Names) -> Names | None:
        self.expression(statement.test, known)
        if not self.runs(statement.test):
            # Only one of them may ever be taken: what is in it is left to the types.
            after = _Optimist(self).block((statement,), known)
            return after
        ways = [self.block(part, known) for part in (statement.body, statement.orelse)]
        going = [names for names in ways if names is not None]
        if not going:
            return None
        if len(going) == 2:
            self._chosen_functions(statement)
        return frozenset.intersection(*going)

    def _chosen_functions(self, statement: form.If) -> None:
        """A name that stands for one function on one way and for another on the other."""
        yes, no = ({target.name: one.value for one in part if isinstance(one, form.Assign)
                    for target in one.targets if isinstance(target, form.Local)}
                   for part in (statement.body, statement.orelse))
        for name in yes.keys() & no.keys():
            if _is_function(yes[name]) and _is_function(no[name]) and yes[name] != no[name]:
                self.refuse(no[name], _CHOSEN)

    def _repeated(self, statement: form.For | form.While, known: Names) -> Names | None:
        if isinstance(statement, form.For):
            self.expression(statement.iterable, known)
            begun = known | liveness.stored(statement.target)
            match statement.iterable:
                case form.Call(form.Library("range"), bounds):
                    sure = not any(map(self.runs, bounds))
                case _:
                    sure = True
        else:
            begun, sure = known, not self.runs(statement.test)
        # A turn may read what the turn before it left.
        self.block(statement.body, begun | liveness.assigned(statement.body))
        at_best = _Optimist(self).block((statement,), known)
        return at_best if sure or at_best is None or statement.orelse else known

    # -- expressions --------------------------------------------------------------------------------------------------

    def target(self, target: form.Expression, value: form.Expression | None, known: Names) -> None:
        """What is assigned to: an item of a list, or of what may be another array, is refused."""
        root = _root(target)
        if isinstance(target, form.Index) and isinstance(root, form.Local):
            self.expression(target, known)
            listed = self.bindings.get(root.name, [])
            if listed and isinstance(target.value, form.Local) and \
                    all(map(_is_list, listed)):
                self.refuse(target, "only the items of an array that the function made can be assigned to, with "
                                    f"np.zeros(n), np.array([...]) or .copy(); {root.name} is a list")
        if isinstance(target, form.Local) and target.name in self.mutated and value is not None and _is_view(value):
            self.refuse(target, f"{target.name} is written to and would be a view of another array, which would change "
                                "too; write .copy() here")

    def expression(self, node: object, known: Names) -> None:
        """Look at an expression, and all that it is made of."""
        match node:
            case form.Local(name) if name not in known and name in self.bound:
                self.refuse(node, f"{name} may have no value here: give it one on every way that leads here")
            case form.Called():
                return
            case form.Each() | form.Listed():
                self.expression(node.iterable, known)
                inside = known | liveness.stored(node.target)
                self.expression((node.value, *node.conditions), inside)
                return
            case form.Compare(first, operators, others) if {"is", "is not"} & set(operators) \
                    and all(map(self.runs, (first, *others))):
                self.refuse(node, "is compares with None only; write == for numbers")
            case form.Choice(test, yes, no) if self.runs(test) and _is_function(yes) and _is_function(no) and yes != no:
                self.refuse(node, _CHOSEN)
            case form.Choice(test) | form.Logical(_, (test, *_)):
                # What is evaluated only sometimes may be decided before.
                self.expression(test, known)
                return
        for part in _parts(node):
            self.expression(part, known)

    def result(self, value: form.Expression) -> None:
        """What is returned, as far as it is no result whatever the types are."""
        match value:
            case form.Literal(None):
                self._none_on_some_ways(value)
            case form.TupleOf(()):
                self.refuse(value, "an empty tuple cannot be returned")
            case form.TupleOf(items) | form.DictOf(_, items):
                for item in items:
                    if item == form.Literal(None):
                        self.refuse(item, "None cannot be part of a result")
                    self.result(item)
            case form.ListOf():
                self.refuse(value, "a list cannot be chosen while the kernel runs, or returned; make it an array, "
                                   "np.array([...]), or a tuple")
            case form.Local(name) if self.bindings.get(name) and all(
                    isinstance(one, form.ListOf) for one in self.bindings[name]):
                self.refuse(value, f"{name} is a list, which cannot be returned; make it an array, np.array({name})")
            case form.Choice(test, yes, no) if self.runs(test):
                for one in (yes, no):
                    if one == form.Literal(None):
                        self._none_on_some_ways(one)
                    self.result(one)


class _Optimist:
    """What a block may leave at best: of ways that may be decided before, the names of all of them."""

    def __init__(self, check: _Check):
        self.check = check

    def block(self, body: form.Block, known: Names) -> Names | None:
        for statement in body:
            match statement:
                case form.Return() | form.Break() | form.Continue():
                    return None
                case form.If(test, yes, no):
                    ways = [self.block(yes, known), self.block(no, known)]
                    if None in ways and not (self.check.runs(test) and ways != [None, None]):
                        return None
                    known = known.union(*(names for names in ways if names is not None))
                case form.For() | form.While():
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


def _is_function(node: form.Expression) -> bool:
    return isinstance(node, form.Library | form.Called)


def _is_list(node: form.Expression | None) -> bool:
    return isinstance(node, form.ListOf | form.Listed) or (
        isinstance(node, form.Binary) and node.operator == "*" and isinstance(node.left, form.ListOf))


def _is_view(node: form.Expression) -> bool:
    """Whether an array that this gives is another's, or a part of it."""
    if isinstance(node, form.Index):
        return any(isinstance(index, form.Slice) for index in node.indices)
    return isinstance(node, form.Local)


def _root(node: form.Expression) -> form.Expression:
    while isinstance(node, form.Index):
        node = node.value
    return node


def _parts(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, form.Expression):
        yield from (part for name, part in vars(node).items() if name != "at")


def _stored_items(body: form.Block) -> Iterator[form.Index]:
    """What items of arrays are assigned to."""
    for statement, _ in liveness.statements(body):
        targets = statement.targets if isinstance(statement, form.Assign) else \
            (statement.target,) if isinstance(statement, form.Augment) else ()
        yield from (target for target in targets if isinstance(target, form.Index))


def _bindings(body: form.Block) -> dict[str, list[form.Expression | None]]:
    """What each name is bound to, None for what is not looked at further."""
    found: dict[str, list[form.Expression | None]] = {}
    for statement, _ in liveness.statements(body):
        if isinstance(statement, form.Assign):
            for target in statement.targets:
                for name in liveness.stored(target):
                    found.setdefault(name, []).append(statement.value if isinstance(target, form.Local) else None)
        elif isinstance(statement, form.For):
            for name in liveness.stored(statement.target):
                found.setdefault(name, []).append(None)
    return found
