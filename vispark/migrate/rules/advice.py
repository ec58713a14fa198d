"""Answer of ``vispark qualify``: verdicts on the operations of each loop, and on which evidence they rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

#: Evidence: what the first line of an answer says of it, and what better evidence would add.
EVIDENCE = {
    "source": ("the source alone", "an event log of a run adds passes and seconds (vispark qualify LOG --source DIR); "
               "a recording adds types, captured values and keys (vispark record SCRIPT)"),
    "log": ("an event log", "its source adds verdicts on functions (--source DIR)"),
    "log and source": ("an event log and the source",
                       "a recording adds types, captured values and keys (vispark record SCRIPT)"),
    "recording": ("a recording of one run", "a run of the port adds proof (vispark port)"),
}

#: Verdicts on an operation that runs on the device once the program is ported.
ON_DEVICE = frozenset(["vmap", "fold", "keys", "rows of blocks"])


@dataclass(frozen=True)
class Advice:
    """Verdict on one operation of an RDD.

    Attributes
    ----------
    line, column : int
        The place of the method's name, from 1.
    call : str
        The operation as it is written, shortened.
    verdict : str
        "vmap", "fold", "keys", "rows of blocks", "cache", "read_text", "driver", "as it is", "stays" or "by hand".
    detail : str
        What becomes of it, or the reason in the translator's own words.
    certain : bool
        Whether the types of the records were known for it.
    file : str
        Name of a module that the operation is in; empty in the loop's own file.
    """

    line: int
    column: int
    call: str
    verdict: str
    detail: str = ""
    certain: bool = False
    file: str = ""

    @property
    def place(self) -> str:
        """The line, with the name of a module."""
        return f"{self.file}:{self.line}" if self.file else str(self.line)


@dataclass(frozen=True)
class LoopAdvice:
    """A loop with the verdicts on its operations; what only a run can tell is None where there was none.

    Attributes
    ----------
    first, middle, low, high : float or None
        Seconds of the first pass, and the median and quartiles of the later ones.
    predictions : tuple of str
        Lines on devices that were asked about.
    """

    file: str
    line: int
    kind: str
    advice: tuple[Advice, ...]
    warnings: tuple[str, ...] = ()
    passes: int | None = None
    jobs: int | None = None
    tasks: int | None = None
    first: float | None = None
    middle: float | None = None
    low: float | None = None
    high: float | None = None
    predictions: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of all passes, as far as they are known."""
        return (self.first or 0.0) + (self.middle or 0.0) * max(0, (self.passes or 1) - 1)

    @property
    def qualifies(self) -> bool:
        """Whether at least one operation of it runs on the device."""
        return any(each.verdict in ON_DEVICE for each in self.advice)


@dataclass(frozen=True)
class Qualification:
    """Answer for one program.

    Attributes
    ----------
    evidence : str
        A key of :data:`EVIDENCE`.
    notes : tuple of str
        What holds for the program as a whole, and what could not be read.
    seconds : float or None
        Of the whole program, where a run was seen.
    known : bool
        Whether there was enough to say yes or no.
    refused : tuple of str or None
        Why none of its loops is ported, as ``vispark port`` says it; None where one is, or where nobody asked.
    """

    evidence: str
    program: str
    loops: tuple[LoopAdvice, ...]
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    known: bool = True
    extra: dict[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] | None = None

    @property
    def qualifies(self) -> bool:
        """Whether a loop gains: an operation of it runs on the device, and its port was not refused."""
        return self.refused is None and any(loop.qualifies for loop in self.loops)

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON has it."""
        document = {name: value for name, value in dataclasses.asdict(self).items() if name != "extra"}
        return document | {"qualifies": self.qualifies} | self.extra

    def text(self) -> str:
        """Return the answer as the terminal shows it."""
        return "\n".join(_lines(self))


def shortened(text: str, length: int = 44) -> str:
    """Return a text in one line, cut where it is longer.

    Examples
    --------
    >>> shortened("a\\n    b")
    'a b'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length - 3].rstrip() + "..."


def span(low: float, high: float) -> str:
    """Return an interval of seconds in the unit that suits it.

    Examples
    --------
    >>> span(0.0012, 0.0034), span(1.26, 2.1)
    ('1.2 .. 3.4 ms', '1.3 .. 2.1 s')
    """
    return f"{low * 1e3:.3g} .. {high * 1e3:.3g} ms" if high < 0.9995 else f"{low:.1f} .. {high:.1f} s"


def _lines(answer: Qualification) -> Iterator[str]:
    what, better = EVIDENCE[answer.evidence]
    yield f"{answer.program}: this rests on {what}"
    yield better
    if answer.seconds is not None:
        yield f"the program took {answer.seconds:.1f} s"
    for loop in sorted(answer.loops, key=lambda loop: -loop.seconds):
        yield ""
        yield _heading(loop)
        if loop.advice:
            width = min(46, max(len(each.call) for each in loop.advice))
            left = max(4, *(len(each.place) for each in loop.advice))
            for advice in loop.advice:
                word = advice.verdict + (":" if advice.detail else "")
                yield f"  {advice.place:>{left}}  {advice.call:<{width}}  {word} {advice.detail}".rstrip()
        yield from (f"  warning: {each}" for each in loop.warnings)
        yield from (f"  {each}" for each in loop.predictions)
    if answer.refused:
        yield ""
        yield from answer.refused
    if answer.notes:
        yield ""
        yield from answer.notes


def _heading(loop: LoopAdvice) -> str:
    text = f"{PurePath(loop.file).name}, line {loop.line}: {loop.kind}"
    if loop.passes is not None:
        text += f", {_counted(loop.passes, 'pass', 'passes')}"
    if loop.jobs is not None and loop.tasks is not None:
        text += f", {_counted(loop.jobs, 'job')} and {_counted(loop.tasks, 'task')} each"
    if loop.middle is not None and loop.low is not None and loop.high is not None:
        text += f"; a pass {span(loop.low, loop.high)}"
    if loop.first is not None:
        text += f", the first {loop.first:.1f} s"
    return text


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
