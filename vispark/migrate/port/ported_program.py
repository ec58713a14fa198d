"""Port of a program: the loops that stay on the device are changed, and nothing else of its text."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vispark.errors import VisparkError
from vispark.migrate.capture.recorded_program import (
    asking_reading,
    asking_recorded,
    asking_rows,
    promised_keys,
    recorded_calls,
)
from vispark.migrate.capture.run_capture import CapturedCall, RunCapture
from vispark.migrate.port.converted_records import (
    LISTS,
    PAIR,
    ConvertedRecords,
    function_edits,
    list_edits,
    map_edits,
    other_uses,
)
from vispark.migrate.qualify.from_source import asking
from vispark.migrate.rules.advice import ON_DEVICE, Advice
from vispark.migrate.rules.functions import FunctionMaker
from vispark.migrate.rules.loop_rules import A_RECORDING_SAYS, BEHIND, DRAWS, LEAVES_DEVICE, MAPS, LoopRules
from vispark.migrate.rules.typed_verdicts import PAIRS, described, kind_of, schema_of
from vispark.migrate.source.class_members import is_place
from vispark.migrate.source.edits import Edit, SourceBytes, unified
from vispark.migrate.source.program import RddCall, SourceProgram
from vispark.migrate.source.text_sources import TextReader, readers_of
from vispark.migrate.written_files import write_file

#: Verdicts with which an operation may be in a loop that is ported.
_PORTABLE = ON_DEVICE | {"driver", "as it is"}


@dataclass(frozen=True)
class PortedProgram:
    """Changed source of a program.

    Attributes
    ----------
    loops : tuple of int
        The lines of the loops that are ported.
    refused : tuple of str
        Why others are not, each with its line, and what is to be decided.
    modules : dict of str to str
        Changed sources of modules beside the script, by file.
    """

    program: SourceProgram
    text: str
    loops: tuple[int, ...]
    refused: tuple[str, ...]
    modules: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether nothing is ported, and a recording may say otherwise."""
        return not self.loops and any(A_RECORDING_SAYS in each for each in self.refused)

    @property
    def script(self) -> str:
        """The script's source as it was."""
        return self.program.parts[-1].source

    @property
    def diff(self) -> str:
        """The unified diff of all files; empty where nothing is ported."""
        before = {part.file: part.source for part in self.program.parts}
        return "".join([unified(self.script, self.text, self.program.file),
                        *(unified(before[file], text, file) for file, text in self.modules.items())])

    def write(self, path: Path) -> None:
        """Write the changed script, and the changed modules beside it, where it finds them before those that were.

        Raises
        ------
        OutputError
            If one cannot be written; it is as it was then.
        """
        write_file(path, self.text)
        for file, text in self.modules.items():
            module = path.parent / Path(file).resolve().relative_to(Path(self.program.file).resolve().parent)
            module.parent.mkdir(parents=True, exist_ok=True)
            write_file(module, text)


class _NotPorted(Exception):
    """A loop that is not ported, with the reason."""


def port(program: SourceProgram, capture: RunCapture | None = None, imports: bool = True,
         without: Mapping[int, str] | None = None) -> PortedProgram:
    """Return a program with its loops ported, as far as that needs no guess.

    Parameters
    ----------
    program : SourceProgram
    capture : RunCapture, optional
        A recording of it: types, and names that are above all keys. Without one the source alone decides.
    imports : bool
        Whether its imports and definitions may be executed, where there is no recording.
    without : mapping, optional
        Lines of loops that stay as they are, with the reason.

    Raises
    ------
    SourceError
        If the changed source is no Python.

    Examples
    --------
    >>> text = '''
    ... data = sc.textFile(path).map(float).cache()
    ... for _ in range(9):
    ...     w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)
    ... '''
    >>> print(port(SourceProgram("job.py", text)).text)
    import vispark
    <BLANKLINE>
    data = sc.textFile(path).map(float).cache("GPU")
    for _ in range(9):
        w -= data.vmap(lambda x: x * w).reduce(lambda a, b: a + b)
    <BLANKLINE>
    """
    porter = _Porter(program, capture, imports, without or {})
    edits: list[Edit] = []
    ported, refused = [], []
    for loop, calls in program.loops().items():
        try:
            edits += porter.loop(loop, calls)
            ported.append(program.located(loop.lineno)[1])
        except _NotPorted as stop:
            refused.append(f"{program.where(loop.lineno)}: not ported: {stop}")
    if not ported:
        return PortedProgram(program, program.parts[-1].source, (), tuple(refused))
    texts = program.edited([*edits, *porter.imported()])
    return PortedProgram(program, texts.pop(program.file), tuple(ported), tuple(refused), texts)


class _Porter:
    def __init__(self, program: SourceProgram, capture: RunCapture | None, imports: bool, without: Mapping[int, str]):
        self.program, self.capture, self.without = program, capture, without
        self.text = SourceBytes(program.source)
        self.recorded: Mapping[RddCall, CapturedCall] = recorded_calls(program, capture) if capture else {}
        self.ask = asking_recorded(dict(self.recorded)) if capture else asking(FunctionMaker(program, imports))
        self.row_functions = dict[str, list[str]]()
        self.ask_rows = asking_rows(program, dict(self.recorded), capture) if capture else None
        self.ask_reading = asking_reading(dict(self.recorded)) if capture else None

    def verdicts(self, loop: ast.For | ast.While, calls: list[RddCall]) -> dict[RddCall, Advice]:
        """Return the verdicts on a loop's operations and on those before it."""
        rules = LoopRules(self.program, loop, calls, self.ask, self.capture is not None, ask_rows=self.ask_rows,
                          ask_reading=self.ask_reading)
        rules.advice()
        return rules.verdicts

    def loop(self, loop: ast.For | ast.While, calls: list[RddCall]) -> list[Edit]:
        """Return the edits that port a loop.

        Raises
        ------
        _NotPorted
            If it is not ported.
        """
        if why := self._why_without(loop):
            raise _NotPorted(why)
        verdicts = self.verdicts(loop, calls)
        kept = self._nearest([call for call, advice in verdicts.items() if advice.verdict == "cache"], verdicts)
        calls = calls + [call for call in verdicts if call not in calls and call not in kept
                         and any(self._base(each, calls) in self.program.upstream(call) for each in kept)]
        self._check_verdicts(calls, verdicts, kept)
        if not any(verdicts[call].verdict in ON_DEVICE for call in calls):
            raise _NotPorted("nothing of it runs on the device")
        if not kept:
            raise _NotPorted('what it goes over is not cached; decide where .cache("GPU") is to be')
        kept += self._also_kept(kept, calls)
        self._check_kinds(kept)
        bases = {self._base(each, calls) for each in kept}
        for base in bases:
            self._unshared(loop, base)
        before, edits = self._dissolved({*kept, *bases}, calls, bases)
        for call_kept in kept:
            edits += self._cache(call_kept, calls, before)
        edits += self._reading(verdicts)
        for call in calls:
            edits += self._call(call, verdicts[call], kept[0], bases)
        return edits

    def _check_verdicts(self, calls: list[RddCall], verdicts: Mapping[RddCall, Advice], kept: list[RddCall]) -> None:
        """Stop where operations have no port: those by which others stay come first, and all of them are named."""
        bad = [call for call in calls if verdicts[call].verdict not in _PORTABLE]
        bad = [call for call in bad if not verdicts[call].detail.startswith((LEAVES_DEVICE, BEHIND))] or bad
        if not bad:
            return
        call, detail = bad[0], verdicts[bad[0]].detail
        if kept and detail.startswith("runs once") and kept[0] in self.program.upstream(call):
            more = detail.removeprefix("runs once")
            detail = ("it stays in Spark, and makes what the loop goes over of what is cached at "
                      f"{self.program.where(kept[0].line)}: cache what it makes{more}")
        others = dict.fromkeys(self.program.where(each.line) for each in bad[1:])
        also = f"; nor are, by reasons of their own, those of {', '.join(others)}" * bool(others)
        raise _NotPorted(f"{self.program.where(call.line)}, {verdicts[call].call}: {detail}{also}")

    def _nearest(self, kept: list[RddCall], verdicts: Mapping[RddCall, Advice]) -> list[RddCall]:
        """Return the caches that a loop starts from: a cache is left out if another cache is computed from it by an
        operation that stays in Spark.
        """
        return [each for each in kept if not any(
            each in self.program.upstream(other) and any(
                each in self.program.upstream(call) and advice.verdict not in _PORTABLE
                for call, advice in verdicts.items() if call in self.program.upstream(other))
            for other in kept)]

    def _why_without(self, loop: ast.For | ast.While) -> str:
        """Return the reason for which a loop is to stay as it is; empty where there is none."""
        file, line = self.program.located(loop.lineno)
        return self.without.get(line, "") if file == self.program.file else ""

    def _also_kept(self, kept: list[RddCall], calls: list[RddCall]) -> list[RddCall]:
        """Return the further caches of RDDs that functions of the loop are called with, in the loop or elsewhere."""
        passed = self._given(calls)
        return [call for call in self.program.calls if call not in kept and call.method in ("cache", "persist")
                and (call in passed or self.program.before(call) in passed - set(kept))]

    def _given(self, calls: list[RddCall]) -> set[RddCall]:
        """Return the calls that make the RDDs which functions of a loop are called with."""
        return {maker for call in calls if isinstance(on := call.attribute.value, ast.Name)
                and self.program.is_parameter(on) for maker in self.program.makers(on)} - set(calls)

    def _check_kinds(self, kept: list[RddCall]) -> None:
        """Stop where functions of the loop go over several cached RDDs that are not known to hold records of one kind.
        """
        lines = ", ".join(str(call.line) for call in kept)
        if len(kept) > 1 and any(not self._sample(each) for each in kept):
            raise _NotPorted(f"it goes over {len(kept)} cached RDDs, of lines {lines}; a recording in which each of "
                             "them is filled says whether they hold records of one kind")
        samples = [self._sample(each) for each in kept] if len(kept) > 1 else []
        if len(set(map(kind_of, samples))) > 1:
            raise _NotPorted(f"it goes over {len(kept)} cached RDDs, of lines {lines}, with records of several kinds, "
                             f"{' and '.join(map(described, samples))}; decide which one is to be cached on the GPU")

    def _base(self, kept: RddCall, calls: list[RddCall]) -> RddCall:
        """Return the call that makes what the loop goes over: where caching is for its effect, the one before it."""
        before = self.program.before(kept)
        if before is None or kept in self._given(calls) or any(kept in self.program.upstream(call) for call in calls):
            return kept
        return before

    def _is_bound_for(self, name: ast.Name, calls: list[RddCall]) -> bool:
        """Return whether what is assigned to a name beside it is what the loop goes over then."""
        scope = self.program.scope_of(name)
        if isinstance(scope, ast.Module):
            return True
        if not self.program.is_parameter(name):
            return bool(self.program.is_assigned(name))
        return any(call.scope is scope for call in calls) or any(
            isinstance(each, ast.Name) and each.id == name.id for each in self.program.returned(scope))

    def _unshared(self, loop: ast.For | ast.While, kept: RddCall) -> None:
        """Stop where another loop goes over the same RDD and cannot be ported."""
        for other, calls in self.program.loops().items():
            if other is loop or not any(kept in self.program.upstream(call) for call in calls):
                continue
            verdicts = self.verdicts(other, calls)
            bad = [call for call in calls if verdicts[call].verdict not in _PORTABLE or self._why_without(other)]
            if bad:
                raise _NotPorted(f"the loop at {self.program.where(other.lineno)} goes over the same RDD and stays in "
                                 f"Spark, by {self.program.where(bad[0].line)}; decide whether there are to be two "
                                 "copies of the data")

    def _dissolved(self, pairs: set[RddCall], calls: list[RddCall],
                   bases: set[RddCall]) -> tuple[str, list[Edit]]:
        """Return the text before the cache, and edits of what else goes over what is cached.

        The text is none, or a map that makes dicts of pairs that functions take apart, or tuples of named ones.

        Raises
        ------
        _NotPorted
            If something else of the program goes over these records.
        """
        changed = {call for call, found in self.recorded.items() if found.pairs or found.named}
        if not changed & set(calls):
            return "", []
        form = self._form(next(call for call in calls if call in changed))
        for call in calls:
            if call.method in MAPS and self._before(call) in bases and call not in changed:
                raise self._stop(call, f".{call.method} is of the {form.what} as they are, which other functions of "
                                 f"the loop have as {form.become}; write all of them in one way")
        ported = {call for each in self.program.loops().values() for call in each} & changed
        edits = list[Edit]()
        for other in other_uses(self.program, pairs, ported):
            if other.method in DRAWS or (other.method == "filter" and other in calls):
                continue
            changes = list_edits(self.text, other, form) if other.method in LISTS else map_edits(self.text, other, form)
            if changes is not None:
                edits += changes
                continue
            raise self._stop(other, f".{other.method} goes over the {form.what}, too, which functions of the "
                             f"loop take apart; decide whether they are to be {form.become}")
        return form.before, edits

    def _form(self, call: RddCall) -> ConvertedRecords:
        """Return the form in which a port has the records of a call.

        Raises
        ------
        _NotPorted
            If the program has no name for the class of its named tuples.
        """
        named = self.recorded[call].named
        if not named:
            return PAIR
        if named[0] not in _names_at_top(self.program.tree):
            raise self._stop(call, f"its records are named tuples {named[0]}, a class for which the program has no "
                             "name at its top; make it one")
        return ConvertedRecords(named[0], tuple(named[1:]))

    def _reading(self, verdicts: Mapping[RddCall, Advice]) -> Iterator[Edit]:
        """Yield the edits that have ``vispark.read_text`` read the numbers of which a recorded run read the same."""
        for call, reader in readers_of(self.program).items():
            if self.ask_reading is None or not isinstance(reader, TextReader) or reader.source is None \
                    or call not in verdicts or verdicts[call].verdict != "read_text" or self.ask_reading(call) != "":
                continue
            source = reader.source.node
            is_here = self.program.located(reader.source.line)[0] == self.program.file
            edits = [Edit(self.text.start(source), self.text.end(source), reader.text.removesuffix(reader.behind)),
                     *[Edit(self.text.end(each.attribute.value), self.text.end(each.node),
                            reader.behind if each is reader.maps[-1] else "") for each in reader.maps]]
            # A comment in what falls away would go with it.
            if is_here and not any("#" in self.text.between(each.start, each.end) for each in edits):
                yield from edits

    def _cache(self, call: RddCall, calls: list[RddCall], before: str = "") -> Iterator[Edit]:
        """Yield the edits that cache on the device, where caching is for its effect into a name of what the loop goes
        over.
        """
        kept = f'{before}.cache("GPU")'
        if self._base(call, calls) is call:
            yield Edit(self._name(call), self.text.end(call.node), kept.removeprefix("."))
            return
        on, statement = call.attribute.value, next(each for each in self.program.around(call.node)
                                                   if isinstance(each, ast.stmt))
        if not is_place(on):
            raise self._stop(call, f"the result of {call.method} goes nowhere, and cache(\"GPU\") gives an RDD of its "
                             "own; decide what is to have it")
        if isinstance(on, ast.Name) and not self._is_bound_for(on, calls):
            raise self._stop(call, f"cache(\"GPU\") gives an RDD of its own, which {on.id} is to be where the loop is; "
                             "cache it there")
        name, start = ast.unparse(on), self.text.start(statement)
        if isinstance(statement, ast.Expr) and statement.value is call.node:
            yield Edit(start, start, f"{name} = ")
            yield Edit(self._name(call), self.text.end(call.node), kept.removeprefix("."))
            return
        line = self.text.offset(statement.lineno, 0)
        is_first = not self.text.between(line, start).strip()
        if isinstance(statement, ast.If | ast.While | ast.For | ast.With | ast.Try) and not (
                is_first and self.text.between(start, start + 4) != "elif"):
            raise self._stop(call, f"cache(\"GPU\") gives an RDD of its own; write {name} = {name}.cache() before the "
                             "statement")
        between = "\n" + self.text.between(line, start) if is_first else "; "
        yield Edit(start, start, f"{name} = {name}{kept}{between}")
        yield Edit(self.text.end(on), self.text.end(call.node), "")

    def _call(self, call: RddCall, advice: Advice, kept: RddCall, bases: set[RddCall]) -> Iterator[Edit]:
        if advice.verdict == "vmap":
            yield from self._map(call, kept, bases)
            if call.method == "filter":
                yield from self._counted(call)
        elif advice.verdict == "rows of blocks":
            yield from self._rows(call, bases)
        elif advice.verdict == "fold" and call.method == "reduceByKey":
            yield from self._keys(call)
        elif advice.verdict == "driver":
            yield from self._driver(call)

    def _map(self, call: RddCall, kept: RddCall, bases: set[RddCall]) -> Iterator[Edit]:
        name = self._name(call)
        of = "value" if call.method == "mapValues" else ""
        is_first = self._before(call) in bases
        if of and not is_first:
            raise self._stop(call, "mapValues of pairs that a vmap makes; write a map of the pair")
        sample = self._sample(kept)
        if is_first and not of and sample:
            try:
                layout = schema_of(sample).layout
            except VisparkError as error:
                raise self._stop(kept, f"{error.message.partition(chr(10))[0]}") from error
            captured = self.recorded.get(call)
            if captured is not None and (captured.pairs or captured.named):
                yield from self._parts(call)
            elif layout.keyed and not (captured is not None and captured.of):
                raise self._stop(call, "its records are pairs with a key, of which vmap takes the value, "
                                 "where map takes the pair; decide whether the key is to be a field")
            of = captured.of if captured is not None and captured.of else "record" if layout.kind == "blocks" else ""
        yield Edit(name, name + len(call.method), "vmap")
        if of:
            yield self._argument(call, f'of="{of}"')

    def _counted(self, call: RddCall) -> Iterator[Edit]:
        """Yield the edits of ``filter(f).count()`` that make a sum of 1 where ``f`` holds and 0 elsewhere of it."""
        function, count = call.node.args[0], self.program.parent(call.node)
        start, end = self.text.start(function), self.text.end(function)
        if isinstance(function, ast.Lambda):
            body = function.body
            start, end = self.text.start(body), self.text.end(body)
            # What is choosing itself, or binds a name, is no test without parentheses.
            left, right = ("(", ")") if isinstance(body, ast.IfExp | ast.Lambda | ast.NamedExpr) else ("", "")
            yield Edit(start, start, f"1 if {left}")
            yield Edit(end, end, f"{right} else 0")
        elif call in self.recorded and (self.recorded[call].pairs or self.recorded[call].named):
            raise self._stop(call, f"its records are {self._form(call).what}; write a lambda in place of a name")
        else:
            yield Edit(start, start, "lambda each: 1 if ")
            yield Edit(end, end, "(each) else 0")
        if count is not None:
            name = self.text.end(count) - len("count")
            yield Edit(name, name + len("count"), "sum")

    def _parts(self, call: RddCall) -> Iterator[Edit]:
        """Yield the edits that have a function take dicts apart in place of pairs, or tuples in place of named ones."""
        edits = function_edits(self.text, call.node.args[0], form := self._form(call))
        if edits is None:
            raise self._stop(call, PAIRS if form is PAIR else "its function has others in it; give it a name with def")
        yield from edits

    def _rows(self, call: RddCall, bases: set[RddCall]) -> Iterator[Edit]:
        """Yield the edits that make a function of blocks one of rows, and bring the rows' terms together."""
        row_function = self.ask_rows(call) if self.ask_rows else \
            f"{A_RECORDING_SAYS} whether it can be made one of a row"
        if isinstance(row_function, str):
            raise self._stop(call, f"its records are blocks, and its function is one of a block: {row_function}")
        behind = [each for each in self.program.calls if self.program.before(each) is call and each.method in MAPS]
        if behind or self._before(call) not in bases:
            raise self._stop(call, "a function of blocks with another map before or behind it; make one "
                             "function of them")
        name, function = self._name(call), call.node.args[0]
        yield Edit(name, name + len(call.method), "vmap")
        if row_function.text != self.text.between(self.text.start(function), self.text.end(function)):
            yield Edit(self.text.start(function), self.text.end(function), row_function.text)
        if row_function.fold:
            yield Edit(self.text.end(call.node), self.text.end(call.node), f".vreduce({row_function.fold})")
        for definition, text in row_function.definitions.items():
            module = self.program.located(definition.lineno)[0]
            if module != self.program.located(call.line)[0]:
                self.row_functions.setdefault(Path(module).stem, []).append(f"{definition.name}_row")
            line = self.text.data.find(b"\n", self.text.end(definition))
            at = len(self.text.data) if line < 0 else line
            between = "\n\n\n" if not definition.col_offset else "\n\n"
            yield Edit(at, at, between + textwrap.indent(text, " " * definition.col_offset))

    def _before(self, call: RddCall) -> RddCall | None:
        """Return the call whose records a call is on, before what draws from them."""
        before = self.program.before(call)
        while before is not None and (before.method in DRAWS or before.method == "filter"):
            before = self.program.before(before)
        return before

    def _sample(self, kept: RddCall) -> list[object]:
        captured = self.recorded.get(kept)
        if captured is None or captured.sample is None or self.capture is None:
            return []
        return list(self.capture.value(captured.sample))

    def _keys(self, call: RddCall) -> Iterator[Edit]:
        captured = self.recorded.get(call)
        if captured is None or not captured.keys or any(each.arg == "numKeys" for each in call.node.keywords):
            return
        if promise := promised_keys(self.program, call, captured):
            yield self._argument(call, f"numKeys={promise}")

    def _driver(self, call: RddCall) -> Iterator[Edit]:
        """Yield the edits of ``R.map(g).collect()`` into a list, and of ``collectAsMap`` into a dict; none where
        something else comes behind the map.
        """
        above = self.program.parent(call.node)
        action = self.program.parent(above) if isinstance(above, ast.Attribute) else None
        if not isinstance(above, ast.Attribute) or above.attr not in ("collect", "collectAsMap") \
                or not isinstance(action, ast.Call) or action.args or len(call.node.args) != 1 or call.node.keywords:
            return
        on = call.attribute.value
        item_and_result = self._item_and_result(call)
        if item_and_result is None or "#" in self.text.between(self.text.end(on), self.text.end(action)):
            return
        item, result = item_and_result
        left, right = ("dict([", "])") if above.attr == "collectAsMap" else ("[", "]")
        start = self.text.start(action)
        yield Edit(start, start, f"{left}{result} for {item} in ")
        yield Edit(self.text.end(on), self.text.end(action), f".collect(){right}")

    def _item_and_result(self, call: RddCall) -> tuple[str, str] | None:
        """Return the item and the result of a comprehension in place of a map or mapValues; None where it has none."""
        function, names = call.node.args[0], {each.id for each in ast.walk(call.node.args[0])
                                              if isinstance(each, ast.Name)}
        if isinstance(function, ast.Lambda) and [ast.unparse(function.args)] == [
                each.arg for each in function.args.args]:
            item = function.args.args[0].arg
            result = self.text.between(self.text.start(function.body), self.text.end(function.body))
            if isinstance(function.body, ast.Tuple) and not result.startswith("("):
                result = f"({result})"
        elif isinstance(function, ast.Name):
            item = "value" if call.method == "mapValues" else "each"
            result = f"{function.id}({item})"
        else:
            return None
        if call.method != "mapValues":
            return (item, result) if call.method == "map" else None
        key = next(each for each in ("key", "number", "_key") if each not in names | {item})
        return f"{key}, {item}", f"({key}, {result})"

    def _stop(self, call: RddCall, why: str) -> _NotPorted:
        """Return the error that says why an operation's loop is not ported."""
        return _NotPorted(f"{self.program.where(call.line)}: {why}")

    def _name(self, call: RddCall) -> int:
        """Return the offset of a method's name."""
        return self.text.offset(call.line, call.column - 1)

    def _argument(self, call: RddCall, argument: str) -> Edit:
        """Return the edit that gives a call one more argument, behind those that it has."""
        last = max(self.text.end(each) for each in [*call.node.args, *call.node.keywords])
        rest = self.text.between(last, self.text.end(call.node))
        at = last if rest.count(")") == 1 and "#" not in rest.partition(")")[0] else self.text.end(call.node) - 1
        return Edit(at, at, f", {argument}")

    def imported(self) -> Iterator[Edit]:
        """Yield the edit that imports vispark behind the last import at the top; none where it is imported."""
        first = self.program.parts[-1].first
        body = [each for each in self.program.tree.body if each.lineno > first]
        imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
        if any(isinstance(each, ast.Import) and any(name.name == "vispark" for name in each.names) for each in imports):
            return
        top = [each for each in imports if not any(not isinstance(before, ast.Import | ast.ImportFrom)
                                                   and not _is_docstring(before)
                                                   for before in body[:body.index(each)])]
        docstring = body[0] if body and _is_docstring(body[0]) else None
        after = top[-1] if top else docstring
        more = "".join(f"\nfrom {module} import {', '.join(dict.fromkeys(names))}"
                       for module, names in self.row_functions.items())
        if after is None:
            start = self.text.offset(first + 1, 0)
            yield Edit(start, start, f"import vispark{more}\n")
        else:
            at = self.text.end(after)
            line = self.text.data.find(b"\n", at)
            rest = self.text.data[at:line if line >= 0 else len(self.text.data)]
            if b";" in rest:
                yield Edit(self.text.start(after), self.text.start(after), "import vispark; ")
            else:
                at += len(rest.rstrip(b"\r"))
                yield Edit(at, at, f"\nimport vispark{more}")


def _names_at_top(tree: ast.Module) -> set[str]:
    """Return the names that a program binds at its top."""
    names = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
    return names


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
