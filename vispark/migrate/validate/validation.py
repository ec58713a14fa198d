"""Verdict on two runs of a program: results of statements aligned by the order of the source, compared pass by pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from vispark.migrate.validate.compare import (
    DIFFERS,
    EQUAL,
    NOT_KNOWN,
    VERDICTS,
    Comparison,
    FieldSizes,
    Tolerance,
    compare,
    sizes_of,
)
from vispark.migrate.validate.nearer_result import nearer
from vispark.migrate.validate.noise import is_noise
from vispark.migrate.validate.verdicts import LABELS

#: Passes of a statement that JSON has.
SHOWN = 1000
#: Function and target of a statement: the same in a program and its port, whatever their lines.
Name = tuple[str, str]


@dataclass(frozen=True)
class StatementResults:
    """Results of one statement, pass by pass; the line 0 is the end of the program.

    Parameters
    ----------
    name : tuple of str
        The function that has the statement, and what it assigns to.
    line : int
        In the source.
    values : tuple
        One for each time that it ran: what lies in a file as a
        :class:`~vispark.migrate.capture.stored_results.StoredResult`, of which one at a time is read.
    seconds : tuple of float
        Since the start of the run, when each came.
    is_sorted : bool
        Whether the order of a list's records is part of it, though they are pairs.
    number : int
        Of the statement, in its program.
    sources : tuple of int
        Numbers of the statements with actions of whose records it is made; empty of what actions gave.
    """

    name: Name
    line: int
    values: tuple[Any, ...]
    seconds: tuple[float, ...] = ()
    is_sorted: bool = False
    number: int = 0
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class StatementVerdict:
    """Verdict on a statement's results in all passes.

    Parameters
    ----------
    reference, other : StatementResults
        Those of the program on the CPU and on the GPU.
    noise : float
        The largest difference of the reference from itself, or from its run in wider floats where that decided.
    passes : tuple of Comparison
        One for each pass that both ran.
    scale : float
        The largest value of what falls over the passes, by which its later values are judged; 0 of all else.
    former : mapping
        Sizes of its fields before its first pass.
    tolerance : Tolerance
        Without the noise.
    has_other_order : bool
        Whether its records come in another order than those of the reference, which is not known to change by itself.
    """

    reference: StatementResults
    other: StatementResults
    noise: float
    passes: tuple[Comparison, ...]
    scale: float = 0.0
    former: FieldSizes = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    has_other_order: bool = False

    @property
    def verdict(self) -> str:
        """The worst of the passes' verdicts."""
        if len(self.reference.values) != len(self.other.values):
            return DIFFERS
        return max((each.verdict for each in self.passes), key=VERDICTS.index, default=NOT_KNOWN)

    @property
    def has_order_of_its_own(self) -> bool:
        """Whether records of a pass come in another order than those of the reference, for whatever reason."""
        return not all(each.ordered for each in self.passes)

    @property
    def worst(self) -> float:
        """The largest difference in all passes."""
        return max((each.worst for each in self.passes), default=0.0)

    @property
    def first(self) -> int | None:
        """Number of the first pass, from 1 on, that differs."""
        numbers = [number for number, each in enumerate(self.passes, 1) if each.verdict == DIFFERS]
        return numbers[0] if numbers else None

    @property
    def histogram(self) -> tuple[int, ...]:
        """Floats of all passes by their distances in units in the last place."""
        return tuple(map(sum, zip(*(each.histogram for each in self.passes), strict=True))) or (0,) * len(LABELS)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON has it; of very many passes the first ones, and the first that differs."""
        numbers = sorted({*range(min(len(self.passes), SHOWN)), *([self.first - 1] if self.first else [])})
        return {"target": self.reference.name[1], "function": self.reference.name[0], "cpu_line": self.reference.line,
                "gpu_line": self.other.line, "cpu_passes": len(self.reference.values),
                "gpu_passes": len(self.other.values), "verdict": self.verdict, "noise": _finite(self.noise),
                "worst": _finite(self.worst), "scale": self.scale or None, "first_pass_that_differs": self.first,
                "ulps": dict(zip(LABELS, self.histogram, strict=True)),
                "passes": [{"pass": number + 1, **self.passes[number].as_json()} for number in numbers]}


@dataclass(frozen=True)
class Validation:
    """Verdict on a program's runs: that of each statement which both have, and what only one has.

    Attributes
    ----------
    made : tuple of StatementVerdict
        Those on what is made of records that came in another order.
    """

    statements: tuple[StatementVerdict, ...]
    only_reference: tuple[StatementResults, ...] = ()
    only_other: tuple[StatementResults, ...] = ()
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    notes: tuple[str, ...] = ()
    made: tuple[StatementVerdict, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of the statements' verdicts; not known where nothing was compared."""
        return max((each.verdict for each in (*self.statements, *self.made)), key=VERDICTS.index, default=NOT_KNOWN)

    def as_json(self) -> dict[str, Any]:
        """Return the validation as JSON has it."""
        return {"verdict": self.verdict, "cpu_seconds": self.cpu_seconds, "gpu_seconds": self.gpu_seconds,
                "notes": list(self.notes),
                "statements": [each.as_json() for each in self._shown()],
                "only_cpu": [[each.line, each.name[1]] for each in self.only_reference],
                "only_gpu": [[each.line, each.name[1]] for each in self.only_other]}

    def as_text(self) -> str:
        """Return the validation as the command prints it: the first pass that differs comes first."""
        lines = [self.verdict, *_first_difference((*self.statements, *self.made))]
        lines += [line for each in self._shown() for line in _lines(each, self.made)]
        lines += [f"  line {each.line}: {each.name[1]}: only on the CPU" for each in self.only_reference]
        lines += [f"  line {each.line}: {each.name[1]}: only on the GPU" for each in self.only_other]
        lines += [f"  {each}" for each in self.notes]
        return "\n".join(lines)

    def _shown(self) -> list[StatementVerdict]:
        """Return the statements in the order of the source, of what is made of others that which is not the same."""
        bad = [each for each in self.made if each.verdict in (NOT_KNOWN, DIFFERS)]
        return sorted([*self.statements, *bad], key=lambda each: each.reference.line or math.inf)


def grouped(frames: Sequence[tuple[Name, int, int, float, Any]]) -> list[StatementResults]:
    """Return results by statements, in the order of the source.

    Parameters
    ----------
    frames : sequence of tuples
        Name, number and line of the statement, seconds, and the value, in the order of the run.
    """
    groups: dict[tuple[int, Name], list[tuple[int, float, Any]]] = {}
    for name, number, line, seconds, value in frames:
        groups.setdefault((number if line else 10 ** 9, name), []).append((line, seconds, value))
    return [StatementResults(name, each[0][0], tuple(value for _, _, value in each), tuple(at for _, at, _ in each),
                             number=number)
            for (number, name), each in sorted(groups.items(), key=lambda item: item[0])]


def aligned(reference: Sequence[StatementResults],
            other: Sequence[StatementResults]) -> list[tuple[StatementResults | None, StatementResults | None]]:
    """Return pairs of statements of two sources that have one name, in the order of both; None where one has none.

    Examples
    --------
    >>> one = [StatementResults(("", name), 1, ()) for name in ("n", "w", "x")]
    >>> [(a and a.name[1], b and b.name[1]) for a, b in aligned(one, one[1:])]
    [('n', None), ('w', 'w'), ('x', 'x')]
    """
    matcher = SequenceMatcher(None, [each.name for each in reference], [each.name for each in other], autojunk=False)
    pairs: list[tuple[StatementResults | None, StatementResults | None]] = []
    for tag, low, high, other_low, other_high in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(reference[low:high], other[other_low:other_high], strict=True)
        else:
            pairs += [(each, None) for each in reference[low:high]]
            pairs += [(None, each) for each in other[other_low:other_high]]
    return pairs


def validated(reference: Sequence[StatementResults], again: Sequence[StatementResults],
              other: Sequence[StatementResults], tolerance: Tolerance) -> Validation:
    """Compare a run with the reference, statement by statement and pass by pass.

    Parameters
    ----------
    reference, again, other : sequence of StatementResults
        The run on the CPU; one more with its partitions dealt anew, or none; and the run on the GPU.
    tolerance : Tolerance
        Its noise is that of each statement, by ``again``.

    Examples
    --------
    >>> runs = [[StatementResults(("", "w"), 3, (1.0, value))] for value in (0.5, 0.5 + 1e-15, 0.75)]
    >>> validated(*runs, Tolerance()).statements[0].first, validated(runs[0], runs[1], runs[0], Tolerance()).verdict
    (2, 'equal')
    """
    (reference, computed), (again, computed_again), (other, computed_other) = map(_divided, (reference, again, other))
    selves, largest = _partners(reference, again), _sizes_by_name(reference)
    statements, only_reference, only_other = [], [], []
    for one, two in aligned(reference, other):
        if one is not None and two is not None:
            former = {} if one.line else largest.get(one.name[1], {})
            statements.append(_statement(one, selves.get(id(one)), two, tolerance, former))
        elif one is not None:
            only_reference.append(one)
        elif two is not None:
            only_other.append(two)
    selves, others = _partners(computed, computed_again), _partners(computed, computed_other)
    # What records that are not the same lead to says no more.
    right = {each.reference.number: each.has_order_of_its_own for each in statements if each.reference.line
             and each.verdict not in (DIFFERS, NOT_KNOWN)}
    of_order = [each for each in computed if id(each) in others and any(right.get(number) for number in each.sources)
                and all(number in right for number in each.sources)]
    return Validation(tuple(statements), tuple(only_reference), tuple(only_other), made=tuple(
        _statement(each, selves.get(id(each)), others[id(each)], tolerance, {}) for each in of_order))


def with_order_not_known(validation: Validation) -> Validation:
    """Return a validation without a run for the noise: what records in another order lead to is not known to differ.

    On the CPU it may change with the partitions, too.
    """
    why = "it is made of records in another order; a run for the noise says whether it changes on the CPU, too"
    return replace(validation, made=tuple(replace(each, passes=tuple(
        Comparison(NOT_KNOWN, one.worst, why) if one.verdict == DIFFERS else one for one in each.passes))
        for each in validation.made))


def _divided(results: Sequence[StatementResults]) -> tuple[list[StatementResults], list[StatementResults]]:
    """Return the results of actions, and those that were made of them."""
    return [each for each in results if not each.sources], [each for each in results if each.sources]


def _partners(reference: Sequence[StatementResults], other: Sequence[StatementResults]) -> dict[int, StatementResults]:
    """Return the statements of another run by the identities of the reference's."""
    return {id(one): two for one, two in aligned(reference, other) if one is not None and two is not None}


def _statement(reference: StatementResults, again: StatementResults | None, other: StatementResults,
               tolerance: Tolerance, former: FieldSizes) -> StatementVerdict:
    # Results are read twice: how noisy they are is known when all passes were seen.
    sizes = list(map(sizes_of, reference.values))
    scales = list(scales_of(sizes, former))
    def own(by_key: bool) -> list[Comparison]:
        return [compare(one, two, None, not reference.sources, scale, by_key) for one, two, scale in zip(
            reference.values, again.values, scales, strict=False)] if again else []
    # Where equal keys of a sort come in another order on the CPU, too, it is none of the result.
    by_key = not reference.is_sorted or not all(map(is_noise, own(False)))
    selves = own(by_key)
    noise = max((each.worst for each in selves), default=0.0)
    noisy = list(_largest_until(selves)) if selves else []
    is_stable = again is None or (len(again.values) == len(reference.values) and all(map(is_noise, selves)))
    # Of what is made of records, lists come in the order of these, which is known to be another one.
    ordered = all(each.ordered for each in selves) and (is_stable or not again) and not reference.sources
    limits = [replace(tolerance, noise=each.worst, fields=each.fields) for each in noisy] if is_stable else []
    limits += [replace(tolerance, noise=0.0)] * (len(scales) - len(limits))
    passes = [compare(one, two, limit, ordered, scale, by_key) for one, two, scale, limit in zip(
        reference.values, other.values, scales, limits, strict=False)]
    if not is_stable:
        why = "on the CPU it differs from itself when its partitions are dealt anew"
        why += ", as it is made of records in their order" * bool(reference.sources)
        passes = [each if each.verdict == EQUAL else Comparison(NOT_KNOWN, each.worst, why) for each in passes]
    return StatementVerdict(reference, other, noise, tuple(passes), _fallen_from(sizes, scales), former, tolerance,
                            all(each.ordered for each in selves) and not all(each.ordered for each in passes))


def _largest_until(selves: Iterable[Comparison]) -> Iterator[Comparison]:
    """Yield, for each pass, the largest differences of fields in the passes up to it."""
    worst, fields = 0.0, dict[tuple[Any, ...], float]()
    for comparison in selves:
        worst = max(worst, comparison.worst)
        for path, size in comparison.fields.items():
            fields[path] = max(fields.get(path, 0.0), size)
        yield replace(comparison, worst=worst, fields=dict(fields))


def with_nearer(validation: Validation, wide: Sequence[StatementResults], why_not: str = "") -> Validation:
    """Judge what differs by a run in wider floats, and say of each first difference which of the two is nearer to it.

    How far the program on the CPU is from that run is its own rounding error: what differs from it by no more than 8
    times as much is within noise.

    Parameters
    ----------
    validation : Validation
    wide : sequence of StatementResults
        The program on the CPU in wider floats.
    why_not : str
        Why there is no such run; empty where there is.

    Examples
    --------
    >>> runs = [[StatementResults(("", "w"), 3, (value,))] for value in (np.float32(0.5), np.float32(0.75), 0.7)]
    >>> with_nearer(validated(runs[0], [], runs[1], Tolerance()), runs[2]).statements[0].passes[0].nearer
    'the GPU'
    """
    statements_wide, computed = _divided(wide)
    partners = {**_partners([each.reference for each in validation.statements], statements_wide),
                **_partners([each.reference for each in validation.made], computed)}
    statements, of_order = (tuple(_with_nearer(each, partners.get(id(each.reference)), why_not) for each in verdicts)
                            for verdicts in (validation.statements, validation.made))
    return replace(validation, statements=statements, made=of_order)


def _by_own_error(statement: StatementVerdict, wide: StatementResults | None) -> StatementVerdict:
    """Return the verdict with the passes within noise that differ by no more than the CPU's own rounding errors.

    A pass is judged by its own error and by those of the passes before it that differ.
    """
    if wide is None or len(wide.values) != len(statement.reference.values):
        return statement
    scales = scales_of(map(sizes_of, statement.reference.values), statement.former)
    passes, errors, noise = list(statement.passes), list[Comparison](), statement.noise
    for number, (comparison, one, two, exact, scale) in enumerate(zip(
            statement.passes, statement.reference.values, statement.other.values, wide.values, scales, strict=False)):
        if comparison.verdict != DIFFERS:
            continue
        error = compare(one, exact, None, comparison.ordered, scale, not statement.reference.is_sorted)
        if is_noise(error):
            errors.append(error)
            own = [*_largest_until(errors)][-1]
            passes[number] = compare(one, two, replace(statement.tolerance, noise=own.worst, fields=own.fields),
                                     comparison.ordered, scale, not statement.reference.is_sorted)
            noise = max(noise, own.worst)
    return replace(statement, passes=tuple(passes), noise=noise)


def _with_nearer(statement: StatementVerdict, wide: StatementResults | None, why_not: str) -> StatementVerdict:
    statement = _by_own_error(statement, wide)
    if statement.first is None:
        return statement
    number = statement.first - 1
    difference = statement.passes[number]
    if why_not or wide is None or number >= len(wide.values):
        nearest = f"not known: {why_not or 'the run in wider floats has no such pass'}"
    else:
        nearest = nearer(difference, statement.reference.values[number], statement.other.values[number],
                         wide.values[number])
    passes = [*statement.passes[:number], replace(difference, nearer=nearest), *statement.passes[number + 1:]]
    return replace(statement, passes=tuple(passes))


def scales_of(sizes: Iterable[FieldSizes], former: FieldSizes | None = None) -> Iterator[FieldSizes]:
    """Yield, for each pass, the largest sizes that the fields of a result had in the passes before it.

    What falls to 0, as the distance between the centres of two passes, or a gradient at its optimum, is what is left of
    larger terms that cancel: its rounding error is one of these.

    Parameters
    ----------
    sizes : iterable of mappings
        Those of each pass, by :func:`~vispark.migrate.validate.compare.sizes_of`.
    former : mapping, optional
        Those of before.

    Examples
    --------
    >>> list(scales_of([{(): 4.0}, {(): 0.5}, {(): 2.0}]))
    [{}, {(): 4.0}, {(): 4.0}]
    """
    largest = dict(former or {})
    for sizes_here in sizes:
        yield dict(largest)
        for path, size in sizes_here.items():
            largest[path] = max(largest.get(path, 0.0), size)


def _fallen_from(sizes: Sequence[FieldSizes], scales: Sequence[FieldSizes]) -> float:
    """Return the largest of the scales that are above their pass's value; 0 where none is."""
    return max((scale[path] for size, scale in zip(sizes, scales, strict=True) for path in size
                if scale.get(path, 0.0) > size[path]), default=0.0)


def _sizes_by_name(statements: Sequence[StatementResults]) -> dict[str, FieldSizes]:
    """Return the largest sizes of what statements assign, by its name, for what is left of that at the end."""
    largest_of: dict[str, FieldSizes] = {}
    for statement in (one for one in statements if one.line):
        largest: dict[tuple[Any, ...], float] = {}
        for sizes in map(sizes_of, statement.values):
            largest = {path: max(size, largest.get(path, 0.0)) for path, size in {**largest, **sizes}.items()}
        names = statement.name[1].strip("()").split(", ")
        for number, name in enumerate(names):
            largest_of[name] = largest if len(names) == 1 else {
                path[1:]: size for path, size in largest.items() if path[:1] == (number,)}
    return largest_of


def _first_difference(statements: Sequence[StatementVerdict]) -> list[str]:
    """Return a line on the first pass that differs of all, in the order of the run."""
    differing = [(each.first, each) for each in statements if each.first is not None]
    if not differing:
        return []
    # What is left at the end comes behind all passes.
    number, statement = min(differing, key=lambda item: (not item[1].reference.line, item[0]))
    one = statement.passes[number - 1]
    return [f"  first: pass {number}, {_place(statement)}, "
            f"{statement.reference.name[1]}: {one.place or 'the value'}: {one.why}: {one.as_json()['reference']!r} and "
            f"{one.as_json()['other']!r}", *([f"    nearer to float64: {one.nearer}"] if one.nearer else [])]


def _place(statement: StatementVerdict) -> str:
    return f"line {statement.reference.line} ({statement.other.line})" if statement.reference.line else "at the end"


def _lines(statement: StatementVerdict, computed: Sequence[StatementVerdict]) -> list[str]:
    reference, other, worst = statement.reference, statement.other, statement.worst
    counts = f"{len(reference.values)} passes" if len(reference.values) != 1 else "once"
    if len(reference.values) != len(other.values):
        counts = f"{len(reference.values)} passes and {len(other.values)}"
    line_start = f"  {_place(statement)}: {reference.name[1]}: {counts}: {statement.verdict}"
    scaled = f" of its largest value, {statement.scale:.3g}" if statement.scale else ""
    why = next((each.why for each in statement.passes if each.verdict == NOT_KNOWN), "")
    noise = f", worst {worst:.1e}{scaled}, noise {statement.noise:.1e}" if worst else ""
    line = line_start + (f": {why}" if why else noise)
    if statement.has_other_order and not reference.sources:
        of_it = sorted({each.reference.line for each in computed if reference.number in each.reference.sources})
        line += ", its records in another order"
        line += f"; what is made of it in {_lines_text(of_it)} is compared, too" * bool(of_it)
    apart = ulps_text(statement.histogram)
    return [line, *([f"    ulps apart: {apart}"] if worst and apart else [])]


def _lines_text(lines: Sequence[int]) -> str:
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"


def ulps_text(counts: Sequence[int]) -> str:
    """Return a histogram of distances in units in the last place, without its empty bins.

    Examples
    --------
    >>> ulps_text((1200, 3, 0, 1, 0, 0, 0))
    '0: 1,200; 1: 3; 4-15: 1'
    """
    return "; ".join(f"{label}: {count:,}" for label, count in zip(LABELS, counts, strict=True) if count)


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
