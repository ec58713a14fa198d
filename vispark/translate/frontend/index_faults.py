"""Source places of index errors: the function and the subscript that a kernel's error is about.

A kernel says which of its subscripts ended it by a number that follows from the function alone, not from where it
stands in a file: the same function in two places is one kernel.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence

from vispark._utils.callers import user_line
from vispark.errors import DeadlineExceeded, KernelFault, VisparkError
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.source_text import complain

#: The most functions, and the most of a function's places, that are told of.
_FUNCTIONS, _PLACES = 64, 6

#: What the worker's message says of such an index.
_REPORTED = re.compile(r"is out of range for an axis of length \d+(?P<where>, at the subscript "
                       r"(?P<subscript>[0-9a-f]+))")

#: What it says where another thing of a row was wrong.
_OF_ROWS = ("items do not go together", "a row without items")

#: What errors call a function's kernels, and the function.
LabelledFunction = tuple[str, nodes.Definition]

_known: OrderedDict[LabelledFunction, None] = OrderedDict()

#: The last functions whose subscripts were counted, by identity; kept, so that no other has theirs.
_counted: dict[int, tuple[nodes.Definition, dict[int, int]]] = {}


def remember(label: str, definition: nodes.Definition) -> None:
    """Take note of a function that is recorded, and of what errors call its kernels."""
    _known[label, definition] = None
    while len(_known) > _FUNCTIONS:
        _known.popitem(last=False)


def add_user_lines(error: VisparkError, functions: Sequence[LabelledFunction] | None = None) -> None:
    """Add the user's lines to a kernel's error.

    To a fault, where its function indexes by computed numbers: such an index may have ended it. To a kernel that was
    late, or whose rows' lengths were wrong, where it was called from and which function it is of.

    Parameters
    ----------
    error : VisparkError
    functions : sequence of LabelledFunction, optional
        Those of the plan that failed. Where they are not known, those that were recorded last are taken, of which two
        with one label are none: the lines of another plan's function would mislead.
    """
    definitions = _named_by(error, functions)
    is_of_rows = isinstance(error, KernelFault) and any(words in str(error) for words in _OF_ROWS)
    if (isinstance(error, DeadlineExceeded) or is_of_rows) and not error.detail:
        called = [f"  called at {line}"] if (line := user_line()) else []
        at = [f"  File \"{definition.text.file}\", line {definition.text.first}, in {definition.name}"
              for definition in definitions]
        error.args = error.message, error.place, "\n".join(dict.fromkeys([*called, *at]))
    if not isinstance(error, KernelFault) or is_of_rows:
        return
    reported = _REPORTED.search(str(error))
    if reported:
        listed = next((text for definition in definitions
                            if (text := _at(definition, int(reported["subscript"], 16)))), "")
        if listed and not error.detail:
            error.args = error.message.replace(reported["where"], ""), error.place, listed
        return
    places = list(dict.fromkeys(place for definition in definitions for place in computed(definition)))
    if not places or error.detail:
        return
    listed = "\n".join(places[:_PLACES]) + ("\n  ..." if len(places) > _PLACES else "")
    error.args = (error.message, error.place, "so ends a function of vmap whose index is out of range; it indexes by "
                  f"computed numbers in\n{listed}\nCalled in Python on the same elements it raises IndexError there")


def _named_by(error: VisparkError, functions: Sequence[LabelledFunction] | None) -> list[nodes.Definition]:
    """Return the functions whose labels an error names."""
    # That of a Spark job has its place in its words.
    operation = str(error)
    known: Sequence[LabelledFunction] = list(_known) if functions is None else functions
    named = [each for each in dict.fromkeys(known) if re.search(rf"{re.escape(each[0])}(?!\w)", operation)]
    if functions is None:
        places: dict[str, set[object]] = {}
        for label, definition in named:
            places.setdefault(label, set()).add((definition.text.file, definition.at))
        named = [each for each in named if len(places[each[0]]) == 1]
    return [definition for _, definition in named]


def without_number(message: str) -> str:
    """Return a worker's message about an index without the subscript's number, which is internal.

    Examples
    --------
    >>> without_number("index 7 is out of range for an axis of length 5, at the subscript abc01")
    'index 7 is out of range for an axis of length 5'
    """
    reported = _REPORTED.search(message)
    return message.replace(reported["where"], "") if reported else message


def subscript(definition: nodes.Definition, node: nodes.Index) -> int:
    """Return the number of a function's subscript, from its text and the count of equal ones before it; never 0.

    Examples
    --------
    >>> from vispark.translate import trace
    >>> function = trace(lambda p: p[int(p[1])]).definition
    >>> node = next(node for node in nodes.nodes_of(function.body) if isinstance(node, nodes.Index))
    >>> subscript(function, node) == subscript(function, node) > 0
    True
    """
    # One that the translator made of the function's is not among these.
    before = _equal_before(definition).get(id(node), 0)
    return zlib.crc32(f"{definition.name} {node!r}".encode()) << 8 | before % 255 + 1


def _equal_before(definition: nodes.Definition) -> dict[int, int]:
    """Return the count of equal subscripts before each of a function's, by the subscript's identity.

    Loops that are written out ask for the same ones thousands of times.
    """
    counted = _counted.get(id(definition))
    if counted is not None:
        return counted[1]
    count: Counter[nodes.Node] = Counter()
    before: dict[int, int] = {}
    for node in nodes.nodes_of(definition.body):
        if isinstance(node, nodes.Index) and id(node) not in before:
            before[id(node)] = count[node]
            count[node] += 1
    _counted[id(definition)] = definition, before
    for oldest in list(_counted)[:-_FUNCTIONS]:
        _counted.pop(oldest, None)
    return before


def _at(definition: nodes.Definition, wanted: int) -> str:
    """Return the subscript of that number in a function or one that it calls, as errors show places; empty if it has
    none.
    """
    for node in nodes.nodes_of(definition.body):
        if isinstance(node, nodes.Called):
            place = _at(node.definition, wanted)
            if place:
                return place
        elif isinstance(node, nodes.Index) and subscript(definition, node) == wanted:
            return str(complain("in Python it raises IndexError here:", node.at, definition.text, definition.name))
    return ""


def computed(definition: nodes.Definition) -> Iterator[str]:
    """Yield the places in a function, and in those that it calls, of indices that do not follow from the text alone.

    Examples
    --------
    >>> from vispark.translate import trace
    >>> [place.rpartition(":")[2] for place in computed(trace(lambda p: p[0] + p[int(p[1])]).definition)]
    [' p[int(p[1])]']
    """
    turns = set(_turns(definition.body))
    for node in nodes.nodes_of(definition.body):
        if isinstance(node, nodes.Called):
            yield from computed(node.definition)
        elif isinstance(node, nodes.Index) and any(_is_computed(index, turns) for index in node.indices):
            at, text = node.at, definition.text
            line = text.lines[at.line - text.first] if 0 <= at.line - text.first < len(text.lines) else ""
            part = line.encode()[at.column:at.end_column if at.end_line == at.line else None].decode(errors="ignore")
            yield f"  File \"{text.file}\", line {at.line}, in {definition.name}: {part}"


def _is_computed(index: nodes.Expression, turns: set[str]) -> bool:
    if isinstance(index, nodes.Unary):
        return _is_computed(index.operand, turns)
    if isinstance(index, nodes.Local):
        return index.name not in turns
    return not isinstance(index, nodes.Literal | nodes.Slice)


def _turns(body: nodes.Statements) -> Iterator[str]:
    """Yield the variables of loops, which stay within the range of their iterables."""
    for node in nodes.nodes_of(body):
        if isinstance(node, nodes.For | nodes.Each | nodes.Listed):
            yield from liveness.stored(node.target)
