"""``vispark report``: what the store has of jobs, as text, JSON and HTML."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from vispark.migrate.cli import emit, json_option
from vispark.migrate.history import History
from vispark.migrate.report_page import figures, is_validated, page, seconds_text


@click.group("report")
def command() -> None:
    """Show jobs, their runs and verdicts. The store is $VISPARK_HISTORY, or a file in the user's data folder."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Jobs at most.")
@click.option("--search", default="", help="A part of the job's name.")
@json_option
def list_(limit: int, search: str, as_json: bool) -> None:
    """List the jobs, the newest first."""
    history = History()
    jobs = history.jobs(limit, search=search)
    emit({"jobs": jobs, "all": history.count()}, as_json, lambda: _table(jobs))


@command.command("job")
@click.argument("job", type=int)
@json_option
def show(job: int, as_json: bool) -> None:
    """Show JOB, an id that list has: its runs, verdict and figures."""
    found = History().whole_job(job)
    emit(found, as_json, lambda: _text(found))


@command.command("html")
@click.argument("job", type=int)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="[default: NAME.html]")
@json_option
def html(job: int, out: Path | None, as_json: bool) -> None:
    """Write JOB as one HTML file without scripts, which can be mailed."""
    found = History().whole_job(job)
    path = out or Path(f"{Path(found['name']).stem}.html")
    path.write_text(page(found), encoding="utf-8")
    emit({"path": str(path)}, as_json, lambda: str(path))


@command.command("export")
@click.argument("jobs", type=int, nargs=-1)
@json_option
def export(jobs: tuple[int, ...], as_json: bool) -> None:
    """Print JOBS, or all, with all that the store has of them, as JSON."""
    history = History()
    wanted = jobs or [each["id"] for each in history.jobs(limit=-1)]
    click.echo(json.dumps({"jobs": [history.whole_job(each) for each in wanted]}, indent=2, ensure_ascii=False))


@command.command("prune")
@click.option("--days", type=click.FloatRange(0), default=90.0, show_default=True, help="Runs older than this go.")
@click.option("--runs", type=click.IntRange(0), default=None, help="Runs that are kept of each job, the newest.")
@json_option
def prune(days: float, runs: int | None, as_json: bool) -> None:
    """Delete old runs with their traces; jobs, advice and verdicts stay."""
    number = History().prune(days, runs, _remove)
    emit({"deleted": number}, as_json, lambda: f"{number} runs deleted")


def _remove(log: str) -> None:
    try:
        os.unlink(log)
    except FileNotFoundError:
        return
    except OSError as error:
        click.echo(f"vispark: {log} stays: {error.strerror}", err=True)


def _table(jobs: list[dict[str, Any]]) -> str:
    rows = [("id", "job", "runs", "CPU", "GPU", "verdict")]
    for each in jobs:
        shown = seconds_text(each["gpu_seconds"]) if is_validated(each["verdict"]) else "-"
        rows.append((str(each["id"]), each["name"], str(each["runs"]), seconds_text(each["cpu_seconds"]), shown,
                     each["verdict"] or "not validated"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def _text(job: dict[str, Any]) -> str:
    lines = [f"{job['name']}: {job['script']}"]
    shown = figures(job)
    lines.append(f"  verdict: {shown['verdict']}" if shown else "  not validated")
    lines += [f"  {name}: {value}" for name, value in (shown["rows"] if shown else [])]
    for run in job["runs"]:
        lines.append(f"  run {run['id']}: {run['kind']}, {run['state']}, {seconds_text(run['seconds'])}")
        lines += [f"    line {loop['line']}: {loop['passes']} passes of {seconds_text(loop['quartile1'])} .. "
                  f"{seconds_text(loop['quartile3'])}" for loop in run["loops"]]
    return "\n".join(lines)
