"""Table of what the command ``vispark`` makes of public programs, which are not here, but in clones of their own.

``python -m benchmarks.public_programs CLONES``: each repository of the list is a folder of CLONES, named OWNER+NAME. A
clone that is missing is named. A pass of each port is predicted from the recorded run and measured, on the device of
``--device``; on a busy machine ``--clock processor`` takes the processor time of the driver and of the workers.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import numpy as np

from vispark.errors import VisparkError
from vispark.migrate.capture import clocks
from vispark.migrate.commands.run_command import RunAnswer, migrate_program
from vispark.migrate.errors import UNKNOWN
from vispark.migrate.figure_texts import seconds_text
from vispark.migrate.predict.loop_prediction import PredictionTarget
from vispark.migrate.predict.physics import Interval
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.rules.advice import ON_DEVICE, Qualification
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.predictions import ComparedPass

LIST = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class PublicProgram:
    """Program of a public repository.

    Attributes
    ----------
    repository, file : str
        OWNER/NAME, and the path there.
    arguments : list of str, optional
        With which it runs; "{data}" is a file of random numbers. None if it is qualified by its source alone.
    rows, columns : int
        Of that file.
    separator, labels : str and bool
        Between its numbers; whether the last column is -1 or 1.
    changes : list of [before, after]
        Constants of it that are others when it runs, as thousands of passes, or paths and masters of its author's.
    commit : str
        Of the repository, where it was read.
    named : str
        The file of numbers, where the program takes something from its name.
    """

    repository: str
    file: str
    arguments: list[str] | None = None
    rows: int = 2000
    columns: int = 4
    separator: str = " "
    labels: bool = False
    changes: list[list[str]] = field(default_factory=list)
    commit: str = ""
    named: str = "data.txt"

    def path(self, clones: Path) -> Path:
        """Return its path below a folder of clones."""
        return clones / self.repository.replace("/", "+") / self.file

    def data(self, path: Path) -> None:
        """Write the file of numbers, the same ones each time."""
        rng = np.random.default_rng(0)
        numbers = rng.standard_normal((self.rows, self.columns)) + 4 * rng.integers(0, 3, (self.rows, 1))
        if self.labels:
            numbers[:, -1] = np.where(numbers[:, 0] > 4, 1.0, -1.0)
        np.savetxt(path, numbers, "%.6f", self.separator)

    def changed(self, path: Path, folder: Path) -> Path:
        """Return a copy of the program in a folder, with its constants changed.

        Raises
        ------
        ValueError
            If it has one of them no longer.
        """
        text = path.read_text(encoding="utf-8")
        for before, after in self.changes:
            if before not in text:
                raise ValueError(f"{path} has no {before!r}")
            text = text.replace(before, after.replace("{data}", str(folder / self.named)))
        copy = folder / path.name
        copy.write_text(text, encoding="utf-8")
        return copy


def programs(path: Path = LIST) -> list[PublicProgram]:
    """Return the programs of a list.

    Examples
    --------
    >>> {each.repository.count("/") for each in programs()}
    {1}
    """
    return [PublicProgram(**each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["program"]]


#: Factor within which predictions are to be, and that of the programs for which they are to be.
FACTOR, PART = 2.0, 0.9


def row(program: PublicProgram, clones: Path, noise: bool = True, timeout: float | None = None,
        device: str = "host") -> tuple[str, list[ComparedPass]]:
    """Return a program's row of the table, and its predicted passes; one that does not end has the reason there.

    Parameters
    ----------
    program : PublicProgram
    clones : Path
        Folder of the repositories.
    noise : bool
        Whether a program that runs does so once more, with other partitions.
    timeout : float, optional
        Seconds for each of its runs.
    device : str
        ``spark.vispark.device`` on which its port runs.
    """
    path, name = program.path(clones), f"`{program.repository}`: `{Path(program.file).name}`"
    if not path.is_file():
        folder = path.parents[program.file.count("/")]
        return f"| {name} | not there: a clone of {program.repository} belongs into {folder} | | | | | |", []
    try:
        if program.arguments is None:
            return f"| *{name}* | {said(qualify_source(SourceProgram.read(path)))} | | | | | |", []
        with tempfile.TemporaryDirectory(prefix="vispark-public-") as folder:
            data = Path(folder) / program.named
            program.data(data)
            if program.changes:
                path = program.changed(path, Path(folder))
            arguments = tuple(each.replace("{data}", str(data)) for each in program.arguments)
            target = PredictionTarget({}, 100, Interval(0.5, 3.0)).probing(device)
            way = migrate_program(path, arguments, Path(folder), device, noise, timeout, target=target)
            passes = [ComparedPass(**each) for each in way.document.get("predicted", [])]
            return f"| {name} | {' | '.join([*_ran(way), *_times(passes)])} |", passes
    except VisparkError as error:
        return f"| {name} | {error.message.partition(chr(10))[0]} | | | | | |", []


def _times(passes: list[ComparedPass]) -> tuple[str, str, str]:
    """Return the predicted and the measured times of the passes of a program's loops, and the one over the other."""
    predicted = "; ".join(str(Interval(each.low, each.high)) for each in passes)
    measured = "; ".join(seconds_text(each.measured) for each in passes)
    return predicted, measured, "; ".join(f"{each.ratio:.2f}" for each in passes)


def summary(passes: list[ComparedPass]) -> str:
    """Return the number of passes that were predicted within a factor of 2, by the middle of their intervals.

    Examples
    --------
    >>> summary([ComparedPass(3, 1.0, 1.0, 1.5), ComparedPass(3, 1.0, 4.0, 0.5)])
    '1 of 2 passes within a factor of 2 of the middle, 0 inside their interval, geometric mean 0.61: too few'
    """
    within = sum(each.is_within(FACTOR) for each in passes)
    inside = sum(each.low <= each.measured <= each.high for each in passes)
    mean = statistics.geometric_mean(each.ratio for each in passes) if passes else 1.0
    enough = "enough" if passes and within >= PART * len(passes) else "too few"
    return (f"{within} of {len(passes)} passes within a factor of {FACTOR:g} of the middle, {inside} inside their "
            f"interval, geometric mean {mean:.2f}: {enough}")


def said(answer: Qualification) -> str:
    """Return in a few words what an answer says of a program's loops."""
    advice = [each for loop in answer.loops for each in loop.advice]
    verdicts = dict.fromkeys(each.verdict for each in advice if each.verdict in ON_DEVICE)
    if verdicts:
        return ", ".join(verdicts)
    # What runs once stays anyway.
    reasons = dict.fromkeys(each.detail for each in advice if each.detail and not each.detail.startswith("runs once"))
    return "; ".join(list(reasons)[:2]) or (answer.notes[0] if answer.notes else "no loop over RDDs")


def _ran(way: RunAnswer) -> tuple[str, str, str]:
    verdicts = dict.fromkeys(each["verdict"] for loop in way.document["qualification"]["loops"]
                             for each in loop["advice"] if each["verdict"] in ON_DEVICE)
    what = ", ".join(verdicts) or "nothing of a loop runs on the device"
    if not way.document["ported"]:
        return what, "refused: " + "; ".join(each.partition("not ported: ")[2] for each in way.document["refused"]), ""
    if "verdict" not in way.document:
        return what, f"done, not compared: {way.stopped}", ""
    worst = [one["worst"] for each in way.document["validation"]["statements"] for one in each["passes"]]
    far = max([each for each in worst if each is not None], default=0.0)
    return what, "done", way.document["verdict"] + (f", {far:.0e}" if far else "")


def table(chosen: list[PublicProgram], clones: Path, noise: bool = True,
          timeout: float | None = None, device: str = "host",
          kept: list[ComparedPass] | None = None) -> Iterator[str]:
    """Yield the lines of the table, as docs/guide/migrate.md has it, and what its passes come to.

    Parameters
    ----------
    chosen : list of PublicProgram
    clones, noise, timeout, device
        As for :func:`row`.
    kept : list, optional
        Gets the passes.
    """
    passes = [] if kept is None else kept
    yield "| program | what is said | port | results, pass by pass | a pass, predicted | measured | over the middle |"
    yield "|---|---|---|---|---|---|---|"
    for program in chosen:
        line, compared = row(program, clones, noise, timeout, device)
        passes += compared
        yield line
    yield ""
    yield summary(passes)


@click.command()
@click.argument("clones", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "list_", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=LIST,
              help="The programs. [default: those of the guide]")
@click.option("--only", default="", help="A part of the path of those that are wanted.")
@click.option("--run/--no-run", default=True, help="Run those that have arguments. [default: run]")
@click.option("--noise/--no-noise", default=True, help="Run them once more, with other partitions. [default: noise]")
@click.option("--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds for each run.")
@click.option("--device", default="host", show_default=True, help="As spark.vispark.device, for the ports.")
@click.option("--clock", type=click.Choice(["wall", "processor"]), default="wall", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON with the table and the passes.")
@click.pass_context
def main(ctx: click.Context, clones: Path, list_: Path, only: str, run: bool, noise: bool, timeout: float, device: str,
         clock: str, out: Path | None) -> None:
    """Print the table of public programs; CLONES has their repositories, as folders OWNER+NAME."""
    chosen = [each for each in programs(list_) if only in f"{each.repository}/{each.file}"]
    if not run:
        chosen = [PublicProgram(each.repository, each.file) for each in chosen]
    lines, passes = list[str](), list[ComparedPass]()
    os.environ[clocks.CLOCK] = clock
    for line in table(chosen, clones.resolve(), noise, timeout, device, passes):
        click.echo(line)
        lines.append(line)
        if out is not None:         # a run that is cut short leaves what it measured
            out.write_text(json.dumps({"device": device, "clock": clock, "table": lines, "passes": [
                asdict(each) for each in passes]}, indent=2) + "\n", encoding="utf-8")
    if not chosen:
        raise click.BadParameter(f"no program of {list_.name} has {only!r} in its path", param_hint="--only")
    ctx.exit(0 if all(each.path(clones).is_file() for each in chosen) else UNKNOWN)


if __name__ == "__main__":
    main()
