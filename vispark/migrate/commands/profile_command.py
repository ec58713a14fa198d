"""Command ``vispark profile``: where the time of a program goes, by the user's lines."""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.commands import script_argument
from vispark.migrate.commands.port_command import surroundings
from vispark.migrate.errors import NO, YES, ValidationError
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_source
from vispark.migrate.written_files import check_file

#: Descriptor to which what the program prints goes.
_STANDARD_ERROR = 2
_DRIVER = "the driver, beside plans and Spark's jobs"


@click.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="The trace, for ui.perfetto.dev. [default: SCRIPT.trace.json]")
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Keep the journal of plans there, too.")
@click.option("--device", default="auto", show_default=True, help="As spark.vispark.device.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Lines at most.")
@click.option("--timeout", type=click.FloatRange(1), default=None, help="Seconds for the run.")
@click.option("--history/--no-history", default=True, help="Keep the profile for vispark report.")
@json_option
@script_argument.script
@script_argument.arguments
@click.pass_context
def command(ctx: click.Context, script: Path, arguments: tuple[str, ...], trace: Path | None, journal: Path | None,
            device: str, top: int, timeout: float | None, history: bool, as_json: bool) -> None:
    """Run a program once under a profile, and print where the time went, by line and by kind of work.

    Options of vispark come before SCRIPT; everything behind it is the program's. What the program prints goes to
    standard error. Exit status: 0 if the program ended with 0; 3 if it did not.
    """
    path = (trace or Path(f"{script.stem}.trace.json")).resolve()
    for written in (path, *([journal] if journal else [])):
        check_file(written)
    answer = profiled(script, arguments, path, journal, device, timeout)
    emit(answer | {"trace": str(path)}, as_json, lambda: text_of(script, answer, path, top))
    if history:
        _keep(History(), script, answer, path)
    ctx.exit(NO if answer["failed"] else YES)


def profiled(script: Path, arguments: tuple[str, ...], trace: Path, journal: Path | None = None, device: str = "auto",
             timeout: float | None = None) -> dict[str, Any]:
    """Run a script under a profile in a process of its own, and return what was found.

    Parameters
    ----------
    script, arguments : Path and tuple of str
        The program.
    trace : Path
        Where the trace goes.
    journal : Path, optional
        Where the journal of plans stays.
    device : str
        ``spark.vispark.device``, unless the program sets it.
    timeout : float, optional
        Seconds for the run.

    Returns
    -------
    dict
        ``total`` in s; ``kinds`` and ``lines``, seconds by kind of work, and by line and kind; ``plans`` of each line,
        by the journal; ``forgotten`` jobs; ``failed``, the reason if the program failed.

    Raises
    ------
    ValidationError
        If the program does not end in time, or ends without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="vispark-profile-") as folder:
        notes, answer_file = (journal or Path(folder) / "journal").resolve(), Path(folder) / "answer.json"
        line = [sys.executable, "-m", "vispark.migrate.record.profile_runner", str(answer_file), str(trace),
                str(script.resolve()), *arguments]
        try:
            with surroundings(script.resolve(), os.getcwd(), device, journal=str(notes)):
                ended = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise ValidationError(f"{script} did not end within {timeout:g} s") from error
        if not answer_file.exists():
            raise ValidationError(f"{script} ended with status {ended.returncode}, without a profile")
        answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
        if ended.returncode and answer["failed"] == "it did not end":
            answer["failed"] = f"it ended with status {ended.returncode}"
        return answer | {"plans": _plans(notes)}


def _plans(journal: Path) -> dict[str, int]:
    """Return the number of plans by the line that waited for them."""
    counts: dict[str, int] = {}
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            place = ":".join(json.loads(line)["line"].split(":")[:2])
            counts[place] = counts.get(place, 0) + 1
    return counts


def _keep(history: History, script: Path, answer: dict[str, Any], trace: Path) -> None:
    job = keep_source(history, script, script.read_text(encoding="utf-8"))
    history.add_run(job, kind="tune", state="failed" if answer["failed"] else "done", seconds=answer["total"],
                    conf={"profile": answer["kinds"], "lines": answer["lines"]}, log=str(trace))


def text_of(script: Path, answer: dict[str, Any], trace: Path, top: int = 20) -> str:
    """Return a profile as text: the lines that took most first, each with its kinds of work.

    Examples
    --------
    >>> found = {"total": 2.0, "kinds": {"kernel": 2.0}, "lines": {"/x/job.py:3": {"kernel": 1.5}, "": {"driver": 0.5}},
    ...          "plans": {"/x/job.py:3": 4}, "forgotten": 0, "failed": ""}
    >>> print(text_of(Path("job.py"), found, Path("t.json")))
    job.py: 2.000 s
        1.500 s   75.0 %  job.py:3   4 plans; kernel 1.500
        0.500 s   25.0 %  the driver, beside plans and Spark's jobs
    trace for https://ui.perfetto.dev: t.json
    """
    whole, lines = answer["total"] or 1.0, [f"{script.name}: {answer['total']:.3f} s"]
    ordered = sorted(answer["lines"].items(), key=lambda each: -sum(each[1].values()))
    for place, kinds in ordered[:top]:
        seconds = sum(kinds.values())
        lines.append(f"  {seconds:7.3f} s  {100 * seconds / whole:5.1f} %  " + (_line(place, kinds, answer) or _DRIVER))
    if left := ordered[top:]:
        lines.append(f"  {sum(sum(kinds.values()) for _, kinds in left):7.3f} s  in {len(left)} further lines")
    if answer["forgotten"]:
        lines.append(f"of {answer['forgotten']} jobs Spark remembers nothing: their time is the driver's")
    if answer["failed"]:
        lines.append(f"the program failed: {answer['failed']}")
    return "\n".join([*lines, f"trace for https://ui.perfetto.dev: {trace}"])


def _line(place: str, kinds: dict[str, float], answer: dict[str, Any]) -> str:
    """Return a line's place, text, plans and kinds of work."""
    if not place:
        return ""
    file, _, number = place.rpartition(":")
    source = linecache.getline(file, int(number)).strip()
    plans = f"{answer['plans'][place]} plans; " if place in answer["plans"] else ""
    spent = ", ".join(f"{kind} {seconds:.3f}" for kind, seconds in sorted(kinds.items(), key=lambda each: -each[1])[:4])
    return f"{Path(file).name}:{number} {source[:60]}  {plans}{spent}"
