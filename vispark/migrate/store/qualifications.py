"""Answers of ``vispark qualify`` and ``vispark port`` in the store: advice, source and diff of a program's job."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePath
from typing import Any

from vispark.migrate.rules.advice import Qualification
from vispark.migrate.store.history import History
from vispark.migrate.validate.compare import NOT_KNOWN


def keep_source(history: History, script: Path, source: str) -> int:
    """Have the job of a script be of this source, and return its id.

    Where the store has another version, its diff goes, and what was validated of it is no longer known.
    """
    name, digest = str(script.resolve()), hashlib.sha256(source.encode()).hexdigest()
    job = history.job(name)
    before = history.whole_job(job)
    if before["digest"] == digest:
        return job
    if before["digest"]:
        forget(history, before, "the script was changed")
    return history.job(name, source=source, digest=digest, diff="")


def keep_qualification(history: History, script: Path, source: str, answer: Qualification) -> int:
    """Write the verdicts on a script's loops to the store, and return the job's id.

    Parameters
    ----------
    history : History
        The store.
    script : Path
        The program, whose path names the job.
    source : str
        Its text.
    answer : Qualification
        The verdicts; those on modules beside it are kept with their file's name.
    """
    job = keep_source(history, script, source)
    history.set_advice(job, advice_rows(answer))
    return job


def keep_port(history: History, script: Path, source: str, diff: str) -> int:
    """Write the diff of a port that was not run to the store, and return the job's id; nothing is validated of it."""
    job = keep_source(history, script, source)
    before = history.whole_job(job)
    if before["diff"] != diff:
        forget(history, before, "the port was changed and not run")
        history.job(before["script"], diff=diff)
    return job


def forget(history: History, job: dict[str, Any], why: str) -> None:
    """Have the last validation of a job, if it has one, be "not known" for a reason."""
    if job["validations"] and job["validations"][-1]["verdict"] != NOT_KNOWN:
        history.add_validation(job["id"], {"verdict": NOT_KNOWN, "why": why, "statements": []})


def advice_rows(answer: Qualification) -> list[dict[str, Any]]:
    """Return the rows of an answer's verdicts, as :meth:`.History.set_advice` takes them."""
    return [{"file": each.file or PurePath(loop.file).name, "line": each.line, "column_": each.column,
             "call": each.call, "verdict": each.verdict, "why": each.detail}
            for loop in answer.loops for each in loop.advice]
