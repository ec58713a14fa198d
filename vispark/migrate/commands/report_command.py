"""``vispark report``: what the store has of jobs, as text, JSON and HTML."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.output import emit, json_option
from gpu_worker.commands.web import server
from vispark.migrate.figure_texts import seconds_text
from vispark.migrate.report.job_page import figures, is_validated, not_ported, page
from vispark.migrate.store.history import History
from vispark.migrate.written_files import write_file


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
    whole = History().whole_job(job)
    emit(whole, as_json, lambda: _text(whole))


@command.command("html")
@click.argument("job", type=int)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="[default: NAME.html]")
@json_option
def html(job: int, out: Path | None, as_json: bool) -> None:
    """Write JOB as one HTML file without scripts, which can be mailed."""
    whole = History().whole_job(job)
    path = out or Path(f"{Path(whole['name']).stem}.html")
    write_file(path, page(whole))
    emit({"path": str(path)}, as_json, lambda: str(path))


@command.command("ui")
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8051, show_default=True, help="0 is any that is free.")
@click.option("--job", type=int, default=None, help="Open this job.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False), help="TLS certificate, in PEM.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="Its key, if it is in a file of its own.")
@click.option("--host-name", "names", multiple=True, help="A name under which browsers reach it; may be repeated.")
@json_option
def ui(listen: str, port: int, job: int | None, certificate: str | None, key: str | None,
       names: tuple[str, ...], as_json: bool) -> None:
    """Serve jobs, runs and verdicts as pages for a browser, until Ctrl-C; they change nothing.

    The link that is printed opens once, within five minutes.
    """
    # No other command needs a web server.
    pages = importlib.import_module("vispark.migrate.report.ui")
    History()       # which says what is wrong with the store, if something is
    with server.ending_on_sigterm(), server.listen(listen, port, bool(certificate)) as sock:
        served = pages.ReportServer(sock, names, certificate, key)
        link = served.link(job)
        emit({"link": link}, as_json, lambda: link)
        served.run()


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
    for job in jobs:
        gpu_time = seconds_text(job["gpu_seconds"]) if is_validated(job["verdict"]) else "-"
        rows.append((str(job["id"]), job["name"], str(job["runs"]), seconds_text(job["cpu_seconds"]), gpu_time,
                     job["verdict"] or "not validated"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def _text(job: dict[str, Any]) -> str:
    lines = [f"{job['name']}: {job['script']}"]
    shown_figures = figures(job)
    lines.append(f"  verdict: {shown_figures['verdict']}" if shown_figures else "  not validated")
    lines += [f"  {name}: {value}" for name, value in (shown_figures["rows"] if shown_figures else [])]
    lines += [f"  {each}" for each in not_ported(job)]
    for run in job["runs"]:
        lines.append(f"  run {run['id']}: {run['kind']}, {run['state']}, {seconds_text(run['seconds'])}")
        lines += [f"    line {loop['line']}: {loop['passes']} passes of {seconds_text(loop['quartile1'])} .. "
                  f"{seconds_text(loop['quartile3'])}" for loop in run["loops"]]
    return "\n".join(lines)
