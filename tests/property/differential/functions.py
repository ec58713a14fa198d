"""Draws functions: probes among branches, loops, calls, closures, rows and arrays of the function's own.

All variables have a known dtype, so that every way through a function gives its variables one type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from tests.property.differential import data
from tests.property.differential.probe import EXACT, Equal, Probe
from vispark.data.records.layout import STARTS
from vispark.translate import ElementField, ElementSpec

#: The operations that keep a dtype, by NumPy's letter for its kind.
_KEEP = {
    "b": ["({} & {})", "({} | {})", "({} ^ {})", "np.logical_or({}, {})", "(~{})", "({} != {})"],
    "i": ["({} + {})", "({} - {})", "({} * {})", "({} // {})", "({} % {})", "({} & {})", "({} | {})", "({} ^ {})",
          "(~{})", "(-{})", "abs({})", "({} << 1)", "({} >> 2)", "({} + 1)", "(2 - {})", "np.maximum({}, {})",
          "np.square({})"],
    "f": ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "(-{})", "abs({})", "({} * 0.5)", "(1 - {})",
          "np.floor({})", "np.sqrt({})", "np.square({})", "({} // {})", "({} % {})"],
    "c": ["({} + {})", "({} - {})", "(-{})", "({} * 2)", "({} + 1)", "np.conjugate({})"],
}
_KEEP["u"] = [text for text in _KEEP["i"] if text not in ("abs({})",)]
_KEEP_ROWS = {
    "b": ["({} & {})", "({} ^ {})", "(~{})"],
    "i": ["({} + {})", "({} * {})", "({} - {}[0])", "({} + 1)", "np.maximum({}, {})"],
    "f": ["({} + {})", "({} * {})", "({} - {}[0])", "({} * 0.5)", "np.abs({})"],
    "c": ["({} + {})", "({} * 2)", "(-{})"],
}
_KEEP_ROWS["u"] = _KEEP_ROWS["i"]

#: What a turn of a loop may do, and what it does to have a statement.
_WAYS = ("assign", "if", "else", "elif", "break", "continue", "swap", "augment", "while", "tuple", "chain", "over")
_TURNS = {"Break": "break", "Continue": "continue", "Augment": "augment", "While": "while", "For": "over"}
_STEERED = 0.8
_BODIES = ("straight", "straight", "straight", "loop", "loop", "early", "inner")

#: Fields of pairs that are Python's numbers.
_PYTHONS = frozenset("kj")

_MAY_RAISE = re.compile(r"math\.|int\(|round\(|\*\*|\.item|//|%|power|pow")
#: Pieces of the probes that give tuples, which a dict's fields may not be.
_TUPLES = ("pair(", "({k}, ", "({j}, ", "divmod(", ".shape", "({a}, (", "({a},) * 2", "(({x}", "(np.fmod({x}",
           "(-{x} >> 1, ", "modf(", "frexp(")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A function's text, what it is given, and how each part of its result is compared.

    Attributes
    ----------
    seed : str
        What draws it again.
    body : str
        Its text without the ``return``.
    values : dict of str
        The expressions that it returns: a dict if it is ``named``, else a tuple.
    fields : dict of str
        What each element has: an array with the elements along its first axis, or a list of rows of several lengths.
        With a field ``k`` the element is a pair, of which this is the key and a dict of the others the value.
    """

    seed: str
    body: str
    values: dict[str, str]
    named: bool
    fields: dict[str, np.ndarray | list[np.ndarray]]
    equals: tuple[Equal, ...]
    dtype: str
    probes: tuple[Probe, ...] = ()

    @property
    def is_pair(self) -> bool:
        """Whether it is of pairs."""
        return "k" in self.fields

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of its fields."""
        return tuple({array[0].dtype.name for array in self.fields.values()})

    def called(self, function: Callable[..., Any], number: int) -> Any:
        """Call a function with an element, as Python has it."""
        values = {name: array[number] for name, array in self.fields.items()}
        if not self.is_pair:
            return function(**values)
        values |= {name: values[name].item() for name in _PYTHONS & values.keys()}
        return function((values.pop("k"), values))

    def record(self) -> ElementSpec:
        """Return the type of an element, as a kernel has it."""
        return ElementSpec(tuple(
            ElementField(self._name(name), array[0].dtype.str, () if isinstance(array, list) else array.shape[1:],
                         "ragged" if isinstance(array, list) else "", name in _PYTHONS)
            for name, array in self.fields.items()))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fields as workers have them."""
        columns = {}
        for name, array in self.fields.items():
            if isinstance(array, list):
                lengths = np.array(list(map(len, array)), np.int64)
                columns[self._name(name) + STARTS] = np.column_stack([np.cumsum(lengths) - lengths, lengths])
            columns[self._name(name)] = np.concatenate(array) if isinstance(array, list) else array
        return columns

    def _name(self, name: str) -> str:
        return name if not self.is_pair else "0" if name == "k" else f"1.{name}"

    def source(self, value: str = "{}") -> str:
        """Return the function, with each value put into a template."""
        values = {name: value.format(text) for name, text in self.values.items()}
        items = [f'"{name}": {text}' if self.named else text for name, text in values.items()]
        result = "{" + ", ".join(items) + "}" if self.named else f"({', '.join(items)},)"
        return f"{self.body}    return {result}\n"


@dataclass
class _Scope:
    """The expressions that stand for numbers and rows at one place of a function."""

    wild: list[str]
    plain: list[str]
    moderate: list[str]
    other: list[str]
    rows: list[str] = field(default_factory=list)
    moderate_rows: list[str] = field(default_factory=list)


class Writer:
    """Draws one function of a dtype, with given probes in it."""

    def __init__(self, random: Random, dtype: str, other: str, length: int, names: frozenset[str] = frozenset()):
        self.random, self.dtype, self.other, self.length, self.names = random, dtype, other, length, names
        self.kind = np.dtype(dtype).kind
        self.lines: list[str] = []

    # -- expressions --------------------------------------------------------------------------------------------------

    def number(self, scope: _Scope, depth: int = 2) -> str:
        """Return an expression of the function's dtype that NumPy's rounding decides."""
        random = self.random
        if depth == 0 or random.random() < 0.45:
            return random.choice(scope.wild)
        way = random.random()
        if way < 0.12:
            return f"({self.number(scope, depth - 1)} if {self.condition(scope)} else {self.number(scope, depth - 1)})"
        text = random.choice(_KEEP[self.kind])
        return text.format(*(self.number(scope, depth - 1) for _ in range(text.count("{}"))))

    def condition(self, scope: _Scope, depth: int = 1) -> str:
        """Return something true or false."""
        random, way = self.random, self.random.random()
        if depth and way < 0.3:
            return f"({self.condition(scope, 0)} {random.choice(['and', 'or'])} {self.condition(scope, 0)})"
        if depth and way < 0.4:
            return f"(not {self.condition(scope, 0)})"
        one, two = random.choice(scope.wild), random.choice(scope.wild)
        if self.kind == "c":
            return f"({one} {random.choice(['==', '!='])} {two})"
        if self.kind == "b":
            return random.choice([one, f"({one} != {two})"])
        if way < 0.6:
            return f"({one} {random.choice(['<', '<=', '>', '>=', '==', '!='])} {random.choice(['0', '1', '2', '5'])})"
        if way < 0.7:
            return f"(0 < {one} <= {two})"
        return f"({one} {random.choice(['<', '<=', '>', '>=', '==', '!='])} {two})"

    def row(self, scope: _Scope, depth: int = 1) -> str:
        """Return a row of the function's dtype and the rows' length."""
        random = self.random
        if depth == 0 or random.random() < 0.5:
            name = random.choice(scope.rows)
            return f"{name}[::-1]" if random.random() < 0.15 else name
        text = random.choice([text for text in _KEEP_ROWS[self.kind] if self.length or "[0]" not in text])
        return text.format(*(random.choice(scope.rows) for _ in range(text.count("{}"))))

    def filled(self, probe: Probe, scope: _Scope) -> str:
        """Return a probe's template with its holes filled."""
        random = self.random
        fill: dict[str, Callable[[], str]] = {
            "a": lambda: self.number(scope), "b": lambda: random.choice(scope.other),
            "x": lambda: random.choice(scope.plain), "y": lambda: random.choice(scope.other),
            "m": lambda: random.choice(scope.moderate), "n": lambda: random.choice(scope.moderate),
            "c": lambda: self.condition(scope), "p": lambda: self.row(scope), "q": lambda: random.choice(scope.rows),
            "r": lambda: random.choice(scope.moderate_rows), "s": lambda: random.choice(scope.moderate_rows),
            "B": lambda: "g", "E": lambda: "d", "U": lambda: "ru", "V": lambda: "rv", "T": lambda: "rw",
            "k": lambda: "k", "j": lambda: "j"}
        return probe.text.format(**{hole: fill[hole]() for hole in sorted(probe.holes)})

    # -- statements ---------------------------------------------------------------------------------------------------

    def add(self, depth: int, *lines: str) -> None:
        """Add lines at a depth."""
        self.lines += ["    " * depth + line for line in lines]

    def turn(self, scope: _Scope, depth: int) -> None:
        """Write one turn of a loop, which changes s and t."""
        random = self.random
        inner = _Scope([*scope.wild, "s", "t"], scope.plain, scope.moderate, scope.other, scope.rows)
        ways = random.sample(_WAYS, random.randint(1, 4))
        ways += [way for name, way in _TURNS.items() if name in self.names and way not in ways]
        for way in ways:
            test = self.condition(inner)
            one, two = self.number(inner, 1), self.number(inner, 1)
            if way == "assign":
                self.add(depth, f"s = {one}")
            elif way == "if":
                self.add(depth, f"if {test}:", f"    s = {one}")
            elif way == "else":
                self.add(depth, f"if {test}:", f"    s = {one}", "else:", f"    t = {two}")
            elif way == "elif":
                self.add(depth, f"if {test}:", f"    t = {one}", f"elif {self.condition(inner)}:", f"    s = {two}",
                         "else:", "    t = s")
            elif way == "break":
                self.add(depth, f"if {test}:", f"    t = {one}", "    break")
            elif way == "continue":
                self.add(depth, f"if {test}:", f"    s = {one}", "    continue")
            elif way == "swap":
                self.add(depth, "s, t = t, s")
            elif way == "augment":
                self.add(depth, f"s {'^=' if self.kind == 'b' else random.choice(['+=', '-='])} {one}")
            elif way == "while":
                self.add(depth, "k = 0", f"while k < {random.randint(0, 3)} and {test}:", f"    s = {one}",
                         "    k += 1")
            elif way == "over":
                jump = ["    if t == u:", f"        {random.choice(['break', 'continue'])}"]
                self.add(depth, f"for u in ({one}, s):", f"    t = {random.choice(['u', 's', 't'])}",
                         *(jump if random.random() < 0.5 else []), "    s = u")
            elif way == "tuple":
                self.add(depth, f"u = ({one}, s)", "t = u[0]")
            else:
                self.add(depth, f"s = t = {one}")
        self.add(depth, f"s = {self.number(inner, 1)}")

    def loop(self, scope: _Scope, rows: bool, length: int) -> None:
        """Write a loop over s and t, of any kind."""
        random = self.random
        heads = [f"for i in range({random.randint(0, 4)}):", "for i in range(1, 6, 2):", "for i in range(3, -1, -1):"]
        if rows and length:
            heads += 2 * ["for v in p:", "for i, v in enumerate(q):", "for v, w in zip(p, q):",
                          "for i in range(len(p)):"]
        head = random.choice(heads)
        inner = _Scope([*scope.wild, *(["v"] if " v" in head else []), *(["w"] if " w " in head or "w in" in head
                                                                        else [])],
                       scope.plain, scope.moderate, scope.other, scope.rows)
        if random.random() < 0.25:
            self.add(1, "e = 0", "while True:", "    e += 1", f"    if e > {random.randint(1, 4)}:",
                     "        break")
            self.turn(scope, 2)
            return
        self.add(1, head)
        self.turn(inner, 2)
        if random.random() < 0.3:
            self.add(1, "else:", "    s, t = t, s")

    def own_array(self, scope: _Scope, length: int) -> None:
        """Write an array that the function makes and writes to, as ``o``."""
        random = self.random
        inner = _Scope([*scope.wild, "s"], scope.plain, scope.moderate, scope.other, scope.rows)
        start = random.choice([f"np.zeros({length}, np.{self.dtype if self.dtype != 'bool' else 'bool_'})", "p.copy()",
                               "np.zeros_like(q)", "np.array(p)"])
        self.add(1, f"o = {start}")
        for way in random.sample(["fill", "slice", "turn", "item", "swap", "augment", "branch"], random.randint(1, 3)):
            if way == "fill":
                self.add(1, f"for i in range({length}):", f"    o[i] = {self.number(inner, 1)}")
            elif way == "slice":
                self.add(1, "o[1:] = p[:-1]")
            elif way == "turn":
                self.add(1, "o[:] = o[::-1]")
            elif way == "item":
                self.add(1, f"o[-1] = {self.number(inner, 1)}")
            elif way == "swap":
                self.add(1, "o[0], o[-1] = o[-1], o[0]")
            elif way == "augment" and self.kind != "b":
                self.add(1, "o += q")
            else:
                self.add(1, f"if {self.condition(inner)}:", f"    o[0] = {self.number(inner, 1)}")


def draw(seed: str, dtype: str, other: str, probes: Sequence[Probe], rows: bool, length: int = 3,
         alone: bool = False, names: frozenset[str] = frozenset()) -> Drawn:
    """Return a function of a seed with given probes.

    Parameters
    ----------
    other : str
        The dtype of the second operand.
    rows : bool
        Whether it has rows, of ``length`` numbers each.
    alone : bool
        Whether there is nothing in it but the probes.
    names : frozenset of str
        Statements that it should have, by their nodes.
    """
    random = Random(seed)
    writer = Writer(random, dtype, other, length, names)
    fields = {"a": data.wild(random, dtype, (data.COUNT,)), "b": data.wild(random, other, (data.COUNT,)),
              "m": data.moderate(random, dtype, (data.COUNT,)), "n": data.moderate(random, dtype, (data.COUNT,))}
    lengths = [random.choice((0, 1, 1, 2, 3, 4, 7)) for _ in range(data.COUNT)] if _has(probes, "UVT") else []
    if lengths:
        fields |= {"ru": [data.wild(random, dtype, (each,)) for each in lengths]}
        fields |= {name: [data.moderate(random, dtype, (each,)) for each in lengths] for name in ("rv", "rw")}
    if _has(probes, "kj"):
        fields["k"] = np.array([random.choice((0, 1, 2, 3, -1, -2, 5, 7, 40)) for _ in range(data.COUNT)], np.int64)
        fields["j"] = np.array([random.choice((0.0, 1.0, -0.5, 0.25, 3.0, -2.0, 0.1)) for _ in range(data.COUNT)])
    scope = _Scope(["a", "m"] if other != dtype else ["a", "b", "m"], ["a"], ["m", "n"], ["b"])
    if rows:
        fields |= {name: data.wild(random, dtype, (data.COUNT, length)) for name in ("p", "q")}
        fields |= {name: data.moderate(random, dtype, (data.COUNT, length)) for name in ("r", "h")}
        fields["g"] = data.moderate(random, dtype, (data.COUNT, 2, length))
        fields["d"] = data.edges(random, dtype, (data.COUNT, length))
        scope.rows, scope.moderate_rows = ["p", "q", "r"], ["r", "h"]
    values, equals = _body(writer, scope, probes, rows, 0 if alone else length, alone)
    if not alone and Random(f"{seed} held").random() < 0.1:
        writer.add(1, 'held = {"u": a, "w": (a, m)}')
        values, equals = [*values, 'held["u"]', 'held["w"][1]'], [*equals, EXACT, EXACT]
    used = "\n".join([*writer.lines, *values])
    taken = [name for name in fields if name in _words(used)] or ["a"]
    if {"j", "k"} & {*taken}:
        taken = ["a", "k", *[name for name in taken if name not in ("a", "k")]]
    named = not alone and random.random() < 0.1 and not any(
        piece in probe.text for probe in probes for piece in _TUPLES)
    heading = [f"def f({', '.join(taken)}):"]
    if "k" in taken:
        heading = ["def f(kv):", "    k, value = kv"]
        heading += [f"    {name} = value['{name}']" for name in taken if name != "k"]
    body = "\n".join([*heading, *writer.lines, ""])
    return Drawn(seed, body, {f"v{i}": value for i, value in enumerate(values)}, named,
                 {name: fields[name] for name in taken}, tuple(equals), dtype, tuple(probes))


def _has(probes: Sequence[Probe], holes: str) -> bool:
    """Return whether a template has one of some holes."""
    return any(probe.holes & set(holes) for probe in probes)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\b[a-z]\w*\b", text))


def _body(writer: Writer, scope: _Scope, probes: Sequence[Probe], rows: bool,
          length: int, alone: bool) -> tuple[list[str], list[Equal]]:
    """Return the function's lines; the values that it returns, and how each is compared."""
    random = writer.random
    way = "straight" if alone else random.choice(_BODIES)
    if writer.names & _TURNS.keys() and random.random() < _STEERED:
        way = "loop"
    values: list[str] = []
    if way == "loop":
        writer.add(1, f"s, t = {writer.number(scope, 1)}, {writer.number(scope, 1)}")
        writer.loop(scope, rows, length)
        values = ["s", "t"]
    elif way == "early":
        writer.add(1, "def g1(z, y=a):", f"    if {writer.condition(_Scope(['z', 'y'], [], [], []))}:",
                   "        return y", "    for i in range(3):",
                   f"        z = {writer.number(_Scope(['z', 'y'], [], [], []), 1)}",
                   f"        if {writer.condition(_Scope(['z', 'y'], [], [], []))}:", "            return z",
                   "    return y")
        writer.add(1, f"s = g1({writer.number(scope, 1)})", f"t = g1(y={writer.number(scope, 1)}, z=s)")
        values = ["s", "t"]
    elif way == "inner":
        writer.add(1, f"k1 = {writer.number(scope, 1)}", "h1 = lambda z: " + writer.number(
            _Scope(["z", "k1", *scope.wild], [], [], []), 2), "s = h1(a)", "t = h1(h1(s))")
        values = ["s", "t"]
    if rows and length and random.random() < 0.6:
        writer.add(1, f"s = {writer.number(scope, 1)}")
        writer.own_array(scope, length)
        values.append("o")
        scope.rows.append("o")
    if values and "s" in values:
        scope.wild += ["s", "t"]
    equals = [EXACT] * len(values)
    for number, probe in enumerate(probes):
        text = writer.filled(probe, scope)
        # What may raise stands by itself, so that it hides no other value.
        if random.random() < 0.3 and not _MAY_RAISE.search(text) and not re.search(r"\bo\b", text):
            writer.add(1, f"v{number} = {text}")
            text = f"v{number}"
        values.append(text)
        equals.append(probe.equal)
    return values, equals

