"""Command ``vispark submit``: ``spark-submit`` of a program, with the settings of a cluster."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.deployment.output import emit, json_option
from gpu_worker.commands.deployment.platforms import SubmitSettings, platform_of
from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.clusters import spark_submit
from vispark.migrate.commands import script_argument
from vispark.migrate.errors import NO, YES
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_source
from vispark.migrate.store.traces import keep_trace


def _collected(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Collect an option for ``spark-submit`` under its own name."""
    options = ctx.ensure_object(dict).setdefault("given", [])
    name = (parameter.name or "").replace("_", "-")
    if isinstance(value, bool):
        options += [(name, None)] if value else []
    else:
        options += [(name, each) for each in (value or ())]


def passed_on(command: click.Command) -> click.Command:
    """Add the options of ``spark-submit`` to a command."""
    for name in spark_submit.VALUES:
        command.params.append(click.Option([f"--{name}"], multiple=True, callback=_collected, expose_value=False,
                                           hidden=name not in ("conf", "py-files"), metavar="NAME=VALUE" if
                                           name == "conf" else "TEXT", help="As spark-submit has it."))
    for name in spark_submit.SWITCHES:
        command.params.append(click.Option([f"--{name}"], is_flag=True, callback=_collected, expose_value=False,
                                           hidden=True))
    return command


@click.command("submit", context_settings={"allow_interspersed_args": False})
@click.option("--cluster", "cluster", default="", help="A cluster that vispark cluster made. [default: what --master "
                                                       "and Spark's own settings say]")
@click.option("--history/--no-history", default=True, help="Keep the run, its trace and break-down for vispark report.")
@click.option("--dry-run", is_flag=True, help="Print the command line, and run nothing.")
@json_option
@click.argument("script")
@script_argument.arguments
@click.pass_context
def command(ctx: click.Context, cluster: str, history: bool, dry_run: bool, as_json: bool, script: str,
            arguments: tuple[str, ...]) -> None:
    """Run a program by spark-submit, with the settings of a cluster before those that are given.

    Every option of spark-submit is taken and passed on; they come before SCRIPT, and everything behind it is the
    program's. Exit status: 0 if the program ends with 0; 3 if it does not.
    """
    if script.endswith(".py") and Path(script).is_file():
        SourceProgram.read(Path(script))
    options = ctx.ensure_object(dict).get("given", [])
    record, settings = Clusters().submission(cluster) if cluster else (None, SubmitSettings(""))
    line = spark_submit.command_line(settings, options, script, arguments)
    if dry_run:
        emit({"command": line, "environment": sorted(settings.environment), "secrets": sorted(settings.secrets)},
             as_json, lambda: shlex.join(line))
        ctx.exit(YES)
    if record is not None and (send := getattr(platform_of(record.platform), "send", None)) is not None:
        answer = send(record, line, script)
        emit({"command": line, "sent": answer}, as_json, lambda: str(answer))
        ctx.exit(YES)
    if script.endswith(".py") and "://" not in script and _is_driven_here(options, settings) \
            and not Path(script).is_file():
        raise click.UsageError(f"{script} does not exist")
    kept: dict[str, Any] = {}
    if history and _is_driven_here(options, settings) and Path(script).is_file():
        with _kept(Path(script), cluster, options, settings) as (settings, kept):
            ended = spark_submit.run(settings, options, script, arguments, capture=as_json)
            kept["status"] = ended.returncode
    else:
        ended = spark_submit.run(settings, options, script, arguments, capture=as_json)
    document = {"command": line, "status": ended.returncode, "stdout": ended.stdout, "stderr": ended.stderr,
                "run": kept.get("run"), "trace": kept.get("trace")}
    if as_json:
        emit(document, True, str)
    else:
        if ended.returncode:
            click.echo(f"vispark: {script} ended with status {ended.returncode}", err=True)
        if kept.get("trace"):
            click.echo(f"vispark: run {kept['run']} of vispark report job {kept['job']}; trace for "
                       f"https://ui.perfetto.dev: {kept['trace']}", err=True)
    ctx.exit(NO if ended.returncode else YES)


def _is_driven_here(options: Sequence[tuple[str, str | None]], settings: SubmitSettings) -> bool:
    """Return whether the driver is a process of this machine, whose files can be read afterwards."""
    named = {name: value for name, value in options if name != "conf"} | spark_submit.named_settings(
        [value for name, value in options if name == "conf" and value is not None])
    modes = [*settings.options, named.get("deploy-mode"), named.get("spark.submit.deployMode"),
             settings.conf.get("spark.submit.deployMode")]
    return "cluster" not in modes


@contextmanager
def _kept(script: Path, cluster: str, options: Sequence[tuple[str, str | None]],
          settings: SubmitSettings) -> Iterator[tuple[SubmitSettings, dict[str, Any]]]:
    """Keep a run in the store, with its trace when it has ended.

    Yields the settings with which it writes what the trace is made of, and the dict of its answer: ``run`` and ``job``,
    ids, and ``trace``; the caller adds the exit ``status``. Where the user has event logs of their own, they stay, and
    the trace has the plans alone.
    """
    history, began = History(), time.monotonic()
    job = keep_source(history, script, script.read_text(encoding="utf-8", errors="replace"))
    run = history.add_run(job, kind="cpu", state="running", cluster=cluster)
    kept: dict[str, Any] = {"run": run, "job": job, "status": None, "trace": None}
    with tempfile.TemporaryDirectory(prefix="vispark-traces-") as place:
        folder = RunFolder(Path(place))
        of_run = folder.settings()
        if _has_logs(options, settings):
            of_run = {name: value for name, value in of_run.items() if name.startswith("spark.vispark.")}
        try:
            yield replace(settings, conf={**of_run, **settings.conf}), kept
        finally:
            trace = folder.read()
            history.change_run(run, state="done" if kept["status"] == 0 else "failed",
                               seconds=time.monotonic() - began, kind="gpu" if trace and trace.answers else "cpu")
            path = keep_trace(history, run, folder)
            kept["trace"] = str(path) if path else None


def _has_logs(options: Sequence[tuple[str, str | None]], settings: SubmitSettings) -> bool:
    """Return whether event logs are set by the user, the cluster or the file of defaults."""
    named = next((value for name, value in reversed(options) if name == "properties-file"), None)
    file = Path(named) if named else spark_submit.defaults_file()
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    set_ = [*settings.conf, *(value or "" for name, value in options if name == "conf"), *text.splitlines()]
    return any(each.strip().startswith("spark.eventLog.") for each in set_)


passed_on(command)
