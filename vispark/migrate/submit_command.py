"""Command ``vispark submit``: ``spark-submit`` of a program, with the settings of a cluster."""

from __future__ import annotations

import shlex
from typing import Any

import click

from vispark.clusters import spark_submit
from vispark.clusters.manager import Clusters
from vispark.clusters.platforms import SubmitSettings, platform_of
from vispark.migrate.cli import emit, json_option
from vispark.migrate.errors import NO, YES


def _collected(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Collect an option for ``spark-submit`` under its own name."""
    given = ctx.ensure_object(dict).setdefault("given", [])
    name = (parameter.name or "").replace("_", "-")
    if isinstance(value, bool):
        given += [(name, None)] if value else []
    else:
        given += [(name, each) for each in (value or ())]


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
@click.option("--dry-run", is_flag=True, help="Print the command line, and run nothing.")
@json_option
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, cluster: str, dry_run: bool, as_json: bool, script: str,
            arguments: tuple[str, ...]) -> None:
    """Run a program by spark-submit, with the settings of a cluster before those that are given.

    Every option of spark-submit is taken and passed on; they come before SCRIPT, and everything behind it is the
    program's. Exit status: 0 if the program ends with 0; 3 if it does not.
    """
    given = ctx.ensure_object(dict).get("given", [])
    record, settings = Clusters().submission(cluster) if cluster else (None, SubmitSettings(""))
    line = spark_submit.command_line(settings, given, script, arguments)
    if dry_run:
        emit({"command": line, "environment": sorted(settings.environment), "secrets": sorted(settings.secrets)},
             as_json, lambda: shlex.join(line))
        ctx.exit(YES)
    if record is not None and (send := getattr(platform_of(record.platform), "send", None)) is not None:
        said = send(record, line, script)
        emit({"command": line, "sent": said}, as_json, lambda: str(said))
        ctx.exit(YES)
    ended = spark_submit.run(settings, given, script, arguments, capture=as_json)
    document = {"command": line, "status": ended.returncode, "stdout": ended.stdout, "stderr": ended.stderr}
    if as_json:
        emit(document, True, str)
    elif ended.returncode:
        click.echo(f"vispark: {script} ended with status {ended.returncode}", err=True)
    ctx.exit(NO if ended.returncode else YES)


passed_on(command)
