"""Verdicts on the operations of a loop, by rules: each operation on the state that the one before it leaves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from vispark.migrate.rules.advice import ON_DEVICE, Advice, LoopAdvice, shortened
from vispark.migrate.rules.functions import FOLDS, Verdict
from vispark.migrate.source.class_members import is_place
from vispark.migrate.source.program import SOURCES, LoopStatement, RddCall, SourceProgram
from vispark.migrate.source.rebound_names import late_change
from vispark.migrate.source.row_functions import FunctionOfRow
from vispark.migrate.source.text_sources import OTHERWISE, TextReader, readers_of

#: Operations whose function is of one record.
MAPS = frozenset(["map", "mapValues"])
#: Actions that workers fold, of numbers and arrays.
_TOTALS = frozenset(["sum", "count", "min", "max", "mean", "stats", "variance", "stdev", "histogram", "countByValue"])
#: Operations by which workers draw from cached records; these stay as they are.
DRAWS = frozenset(["sample"])
#: Operations whose results are records of what is cached, or maps of them.
PASSING = MAPS | DRAWS | {"filter"}
#: Operations by key, in workers where keys are numbers.
_BY_KEY = frozenset(["join", "distinct", "sortByKey", "sortBy", "partitionBy", "countByKey", "cogroup", "groupByKey"])
#: Actions that take records as they are, with how these come to the driver.
_TAKING = dict.fromkeys(["collect", "collectAsMap", "take", "first", "isEmpty", "takeSample", "toLocalIterator"],
                        "brings its records to the driver") | dict.fromkeys(
    ["takeOrdered", "top"], "the workers sort their records, and as many as are asked for leave them")
#: Operations of grids in disguise: records go to their neighbours' keys and are joined there.
_TO_NEIGHBOURS = frozenset(["flatMap"])
_AT_NEIGHBOURS = frozenset(["join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "cogroup", "reduceByKey",
                            "groupByKey"])
_JOINS = frozenset(["join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "cogroup", "union"])

#: Begins what a source alone leaves open.
A_RECORDING_SAYS = "a recorded run says"
#: Reason for which a source alone says nothing of an operation.
UNKNOWN_FUNCTION = f"{A_RECORDING_SAYS} what its function is"
#: Folds by key that workers have none of, with what to write.
_OTHER_FOLDS = dict.fromkeys(
    ["aggregateByKey", "combineByKey"], "the workers fold by reduceByKey: map the records to what is folded, as "
    "(key, (value, 1)), and join two of these")
#: Beginnings of the reasons for which an operation stays because of another one.
LEAVES_DEVICE, BEHIND = "could run on the device, but its records leave it at", "behind what stays in Spark"
#: Reason for which nothing is known of a recorded function.
NOT_CACHED = "what it goes over is not cached, so its records were not looked at: cache it first"

#: Verdict of a function, by the operation's call: None where it is not known.
VerdictOfCall = Callable[[RddCall], Verdict | None]
#: Row function of an operation on blocks, or the reason why there is none.
AskRows = Callable[[RddCall], FunctionOfRow | str]
#: Why ``vispark.read_text`` does not read the records of a map of lines: empty where it does, None where no run told.
AskReading = Callable[[RddCall], str | None]


@dataclass(frozen=True)
class _State:
    """State of what a call gives: "outside" the loop, "made" in it, on the "device", "few" records, or in "spark"."""

    name: str
    reason: str = ""


def counting(program: SourceProgram, call: RddCall) -> ast.Attribute | None:
    """Return the ``.count`` of ``filter(f).count()``; None of other operations, and of functions with more than one
    parameter.
    """
    if call.method != "filter" or len(call.node.args) != 1 or call.node.keywords:
        return None
    function, behind = call.node.args[0], program.parent(call.node)
    if isinstance(function, ast.Lambda):
        if [ast.unparse(function.args)] != [each.arg for each in function.args.args]:
            return None
    elif not isinstance(function, ast.Name):
        return None
    action = program.parent(behind) if isinstance(behind, ast.Attribute) and behind.attr == "count" else None
    return behind if isinstance(behind, ast.Attribute) and isinstance(action, ast.Call) and not action.args else None


class LoopRules:
    """Rules for one loop: a verdict for each of its operations, and for those that its data comes from.

    Parameters
    ----------
    program : SourceProgram
    loop : For or While
    calls : list of RddCall
        The operations in the loop.
    ask : callable
        The translator's verdict on an operation's function.
    certain : bool
        Whether types were known to the translator.
    details : mapping
        More to say of some calls, by a recording: the kind of records that a ``cache`` keeps, ``numKeys=`` of a fold.
    ask_rows : callable, optional
        Gives the row function of an operation on blocks of a recorded run.
    ask_reading : callable, optional
        Says of a recorded run whether ``vispark.read_text`` read the same.
    """

    def __init__(self, program: SourceProgram, loop: LoopStatement, calls: list[RddCall], ask: VerdictOfCall,
                 certain: bool = False, details: Mapping[RddCall, str] | None = None, ask_rows: AskRows | None = None,
                 ask_reading: AskReading | None = None):
        self.program, self.loop, self.calls, self.ask, self.certain = program, loop, calls, ask, certain
        self.ask_rows, self.ask_reading = ask_rows, ask_reading
        self.details = details or {}
        # What is made of cached data before the loop is part of what each pass may take from the device.
        self.calls = [*[call for call in self._feeding() if self._is_behind_cache(call)], *calls]
        self._states: dict[RddCall, _State] = {}
        self._advice: dict[RddCall, Advice] = {}

    def advice(self) -> LoopAdvice:
        """Return the verdicts, in the order of the source's places."""
        for call in self.calls:
            self._state(call)
        self._take_back()
        is_gain = any(each.verdict in ON_DEVICE for each in self._advice.values())
        for call in self._feeding():
            self._advice[call] = self._of_feeding(call, is_gain)
        for call, reader in readers_of(self.program).items() if is_gain else ():
            if call in self._feeding():
                self._of_text(call, reader)
        kind = "while" if isinstance(self.loop, ast.While) else "for"
        ordered = sorted(self._advice, key=lambda call: (call.line, call.column))
        return LoopAdvice(*self.program.located(self.loop.lineno), kind,
                          tuple([self._advice[call] for call in ordered]), tuple(self._warnings()))

    @property
    def verdicts(self) -> dict[RddCall, Advice]:
        """The verdicts by the calls, after :meth:`advice`."""
        return self._advice

    def _take_back(self) -> None:
        """Change verdicts of chains that leave the device in the loop: what workers compute would be copied back."""
        for call in self.calls:
            if self._advice[call].verdict in ("stays", "by hand") and self._state(call).name == "spark":
                why = f"{LEAVES_DEVICE} {self.program.where(call.line)}, .{call.method}"
                for above in self.program.upstream(call):
                    if above in self._advice and self._advice[above].verdict in ON_DEVICE:
                        self._advice[above] = replace(self._advice[above], verdict="stays", detail=why)

    # -- operations in the loop ---------------------------------------------------------------------------------------

    def _state(self, call: RddCall) -> _State:
        if call not in self._states:
            self._states[call] = _State("outside")       # for a loop's own result of the pass before
            self._states[call] = self._judge(call)
        return self._states[call]

    def _judge(self, call: RddCall) -> _State:
        before = self.program.before(call)
        on = self._outside(before) if before not in self.calls else self._state(before)
        method = call.method
        if method in SOURCES or on.name == "made":
            return self._made(call)
        if method in ("cache", "persist", "unpersist"):
            return self._put(call, "as it is", "" if on.name != "spark" else on.reason, on)
        if on.name == "few":
            return self._of_few(call, on)
        if on.name == "spark":
            return self._put(call, "stays", f"{BEHIND}: {on.reason}", on)
        if method in MAPS:
            return self._of_map(call)
        if counting(self.program, call) is not None and Verdict(False, NOT_CACHED) != self.ask(call):
            return self._of_map(call)
        if method == "filter":
            return self._of_filter(call)
        if method in FOLDS:
            return self._of_fold(call)
        if method in DRAWS:
            return self._put(call, "as it is", "the workers draw from what is cached", _State("device"))
        if method in _TOTALS:
            return self._put(call, "fold", "the workers fold it", _State("local"))
        if method in _TAKING:
            return self._put(call, "as it is", _TAKING[method], _State("local"))
        if method in _BY_KEY:
            return self._of_keys(call)
        how = _OTHER_FOLDS.get(method, "")
        return self._put(call, "by hand" if how else "stays", f"{method} is a Spark job that brings the records into "
                         "Python" + f"; {how}" * bool(how),
                         _State("spark", f".{method} at {self.program.where(call.line)}"))

    def _outside(self, before: RddCall | None) -> _State:
        if before is not None:
            grouped = next((each for each in self.program.chain(before) if each.method in ("groupByKey", "cogroup")),
                           None)
            if grouped is not None:
                return _State("spark", f"values that .{grouped.method} at {self.program.where(grouped.line)} made are "
                              "lists")
        return _State("outside")

    def _made(self, call: RddCall) -> _State:
        verdict = self.ask(call) if call.method in MAPS | FOLDS else None
        is_refused = verdict is not None and not verdict.is_read and verdict.reason != NOT_CACHED
        why = f"; {verdict.reason}" if verdict is not None and is_refused else ""
        return self._put(call, "stays", "its data is made anew in each pass, so that nothing is there to keep" + why,
                         _State("made"))

    def _of_map(self, call: RddCall) -> _State:
        verdict = self.ask(call)
        if verdict is None:
            return self._put(call, "stays", UNKNOWN_FUNCTION,
                             _State("spark", f"the function of {self.program.where(call.line)}"))
        if changed := late_change(self.program, call):
            name, line, runs = changed
            why = (f"{name}, which its function reads, changes at {self.program.where(line)}, before "
                   f"{self.program.where(runs)} runs it: Spark takes it as it is then, vmap as it is here; decide, and "
                   "have this line behind the change if Spark is right")
            return self._put(call, "by hand", why, _State("spark", f"the function of {self.program.where(call.line)}"))
        if self._is_of_blocks(call) or (not verdict.is_read and self._has_rows(call)):
            return self._put(call, "rows of blocks", self._rows_of(call), _State("device"))
        if not verdict.is_read:
            return self._put(call, "by hand", f"{verdict.reason}{self._place_of(verdict, call)}",
                             _State("spark", f"the function of {self.program.where(call.line)}"))
        of = "value" if call.method == "mapValues" else verdict.of
        what = f'.vmap(f, of="{of}")' if of else ".vmap"
        if call.method == "filter":
            what = ".vmap of 1 where it holds, else 0, and .sum()"
        what += f"; {verdict.reason}" if verdict.reason else ""
        return self._put(call, "vmap", what if self.certain else f"{what}; the translator reads it, types are not "
                         "known", _State("device"))

    def _place_of(self, verdict: Verdict, call: RddCall) -> str:
        """Return the place of a reason in words; empty where it has none."""
        here, there = (PurePath(file).name for file in (self.program.located(call.line)[0], verdict.file))
        if not verdict.line:
            return ""
        return f" (line {verdict.line})" if there in ("", here) else f" ({there}:{verdict.line})"

    def _of_filter(self, call: RddCall) -> _State:
        verdict = self.ask(call)
        why = UNKNOWN_FUNCTION if verdict is None else \
            verdict.stays if verdict.is_read else verdict.reason
        if why:
            return self._put(call, "stays", f"a Spark job that brings the records into Python: {why}",
                             _State("spark", f".filter at {self.program.where(call.line)}"))
        return self._put(call, "keys", "the workers keep the records for which it holds"
                         + ("" if self.certain else ", where these are numbers or rows"), _State("device"))

    def _rows_of(self, call: RddCall) -> str:
        by_hand = "its records are blocks: the function is to be one of a row"
        if self.ask_rows is None:
            return f"{by_hand}; {A_RECORDING_SAYS} whether it can be made so"
        row_function = self.ask_rows(call)
        if isinstance(row_function, str):
            return f"{by_hand}, which is not made of it: {row_function}"
        return f".vmap({row_function.text})" + (f".vreduce({row_function.fold})" if row_function.fold else "")

    def _of_fold(self, call: RddCall) -> _State:
        verdict = self.ask(call)
        is_keyed = call.method in ("reduceByKey", "foldByKey")
        if verdict is not None and verdict.is_read:
            keys = self.details.get(call, "" if self.certain else "numKeys=... where keys are integers from 0 on")
            detail = verdict.reason + (f"; {keys}" if is_keyed and keys else "")
            return self._put(call, "fold", detail, _State("few" if is_keyed else "local"))
        reason = verdict.reason if verdict is not None else UNKNOWN_FUNCTION
        return self._put(call, "stays", reason, _State("spark", f"the fold of {self.program.where(call.line)}"))

    def _of_keys(self, call: RddCall) -> _State:
        if call.method in ("groupByKey", "cogroup"):
            return self._put(call, "stays", "its lists are Python's", _State("spark", f".{call.method} at line "
                                                                             f"{call.line}"))
        return self._put(call, "keys", "in the workers where keys are numbers, else Spark's shuffle", _State("device"))

    def _of_few(self, call: RddCall, on: _State) -> _State:
        if call.method in MAPS | {"filter"}:
            return self._put(call, "driver", "a list in the driver, [f(each) for each in ...collect()]; it saves the "
                             "pass a Spark job", on)
        return self._put(call, "as it is", "few records", on)

    def _put(self, call: RddCall, verdict: str, detail: str, state: _State) -> _State:
        self._advice[call] = self._advise(call, verdict, detail)
        return state

    def _is_of_blocks(self, call: RddCall) -> bool:
        """Return whether records come of ``mapPartitions`` or ``glom``, and the function indexes rows of them."""
        chain = self.program.chain(call)
        if not any(each.method in ("mapPartitions", "glom", "mapPartitionsWithIndex") for each in chain):
            return False
        return any(_takes_columns(node) for node in self._functions_in(call.node.args[0]))

    def _has_rows(self, call: RddCall) -> bool:
        """Return whether a recorded function of arrays, which were blocks before, becomes one of a row."""
        return self.ask_rows is not None and isinstance(self.ask_rows(call), FunctionOfRow)

    def _functions_in(self, node: ast.expr) -> Iterable[ast.AST]:
        yield node
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.program.functions:
                yield self.program.functions[part.id]

    # -- operations before the loop -----------------------------------------------------------------------------------

    def _feeding(self) -> list[RddCall]:
        """Return the calls outside the loop that its data comes from, back to the source."""
        feeding: list[RddCall] = []
        for call in self.calls:
            chain = self.program.chain(call)
            # X.cache() for its effect on X is behind X, and nothing is behind it.
            chain += [each for each in self.program.calls if each.method in ("cache", "persist")
                      and is_place(each.attribute.value) and self.program.before(each) in chain]
            feeding += [each for each in chain if each not in self.calls and each not in feeding]
        return feeding

    def _is_behind_cache(self, call: RddCall) -> bool:
        return call.method in MAPS and any(each.method in ("cache", "persist") for each in self.program.upstream(call))

    def _of_feeding(self, call: RddCall, is_gain: bool) -> Advice:
        if call.method in ("cache", "persist"):
            kept = "".join(f" of {each}" for each in [self.details.get(call, "")] if each)
            if not is_gain:
                return self._advise(call, "stays", "nothing of the loop runs on the device")
            return self._advise(call, "cache", f'cache("GPU"){kept}')
        verdict = self.ask(call) if call.method in MAPS else None
        why = "runs once"
        if verdict is not None and not verdict.is_read and verdict.reason != NOT_CACHED:
            why += f"; {verdict.reason}"
        return self._advise(call, "stays", why)

    def _of_text(self, call: RddCall, reader: TextReader | str) -> None:
        """Say what reads the lines of which a map makes records, in place of Python a line at a time."""
        once = "runs once, by Python line by line"
        if isinstance(reader, str):
            self._advice[call] = self._advise(call, "stays", f"{once}: {reader}; {OTHERWISE}")
            return
        why = self.ask_reading(call) if self.ask_reading is not None else None
        if reader.source is None:
            self._advice[call] = self._advise(call, "stays", f"{once}; {reader.text} reads it in pieces, but deals "
                                              "other partitions, so that takeSample and sample draw other records: "
                                              "decide")
        elif why:
            self._advice[call] = self._advise(call, "stays", f"{once}; not {reader.text}: {why}")
        else:
            unknown = f"; {A_RECORDING_SAYS} whether it reads the same" if why is None else ""
            for source in (reader.source, *reader.maps):
                self._advice[source] = self._advise(source, "read_text",
                                                    f"part of that of {self.program.where(call.line)}")
            self._advice[call] = self._advise(call, "read_text", f"{reader.text}, in pieces and not line by line"
                                              f"{unknown}")

    def _advise(self, call: RddCall, verdict: str, detail: str) -> Advice:
        """Return a verdict on an operation, at its place."""
        file, line = self.program.located(call.line)
        module = PurePath(file).name if file != self.program.located(self.loop.lineno)[0] else ""
        return Advice(line, call.column, written(self.program, call), verdict, detail, self.certain, module)

    def _moves_keys(self, call: RddCall) -> bool:
        """Return whether an operation sends records to keys beside their own, as ``k + 1``."""
        return call.method in _TO_NEIGHBOURS and bool(call.node.args) and any(
            isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add | ast.Sub)
            for node in self._functions_in(call.node.args[0]) for each in ast.walk(node))

    # -- the loop as a whole ------------------------------------------------------------------------------------------

    def _warnings(self) -> Iterable[str]:
        methods = [call.method for call in self.calls]
        for call in self.calls:
            if call.method in _JOINS and call.method != "union" and len(call.node.args) < 2 \
                    and not any(each.arg == "numPartitions" for each in call.node.keywords):
                yield (f"{self.program.where(call.line)}: {call.method} without numPartitions adds the partitions of "
                       "both sides up, in each pass")
        if _AT_NEIGHBOURS & set(methods) and any(self._moves_keys(call) for call in self.calls):
            yield ("records that flatMap sends to other keys and that are joined or folded there are a stencil where "
                   "keys are cells: vispark.Grid")
        kept = [call for call in self._feeding() if self.program.is_cached(call)]
        if self._feeding() and not kept and any(each.verdict in ON_DEVICE for each in self._advice.values()):
            yield ('what the loop goes over is not cached, so that each pass makes it again: cache("GPU") before the '
                   'loop')


def written(program: SourceProgram, call: RddCall) -> str:
    """Return an operation as it is written, from its dot on, in short."""
    text = program.text_of(call.node)
    before = program.text_of(call.attribute.value)
    if not text.startswith(before):
        return f".{call.method}()"
    return shortened(text[len(before):].replace("\\\n", " ")).replace("( ", "(")


def _takes_columns(node: ast.AST) -> bool:
    """Return whether code has ``m[:, ...]`` or ``m.T``, of arrays with an axis of rows."""
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple) and part.slice.elts \
                and isinstance(part.slice.elts[0], ast.Slice):
            return True
        if isinstance(part, ast.Attribute) and part.attr == "T":
            return True
    return False
