"""Commands ``vispark cluster``: clusters are created, listed, shown, examined and deleted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from vispark.clusters import doctor, spark_submit
from vispark.clusters.errors import ClusterError, ClusterRefused
from vispark.clusters.manager import Clusters
from vispark.clusters.platforms import PLATFORMS, READY, ClusterStatus, platform_of
from vispark.errors import OptionError
from vispark.migrate.cli import emit, json_option
from vispark.migrate.errors import NO, UNKNOWN, YES

dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done; ask nobody, change nothing.")
_NOT_KNOWN = "not known"


def answering(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that a refusal has the exit status 3."""
    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except ClusterRefused as error:
            click.echo(f"vispark: {error}", err=True)
            click.get_current_context().exit(NO)
    return wrapped


@click.group("cluster")
def command() -> None:
    """Create, list, show, examine and delete clusters. They are recorded in the user's folder for state."""


@command.command("create")
@click.argument("name")
@click.option("--platform", required=True, type=click.Choice(sorted(PLATFORMS)), help="What kind of cluster.")
@click.option("-p", "--parameter", "given", multiple=True, metavar="NAME=VALUE", help="A parameter of the platform.")
@click.option("--parameters", "is_list", is_flag=True, help="List the platform's parameters, and do nothing.")
@click.option("--yes", is_flag=True, help="Create what costs money without a question.")
@dry_run_option
@json_option
@answering
def create(name: str, platform: str, given: tuple[str, ...], is_list: bool, yes: bool, dry_run: bool,
           as_json: bool) -> None:
    """Create the cluster NAME; one whose creation was cut short goes on."""
    kind = platform_of(platform)
    if is_list:
        rows = [{"name": each.name, "default": each.default, "meaning": each.meaning} for each in kind.parameters]
        emit({"parameters": rows}, as_json, lambda: "\n".join(
            f"{each['name']:16} {each['default'] or '-':24} {each['meaning']}" for each in rows))
        return
    parameters = _parameters(given)
    plan = Clusters().plan(name, platform, parameters)
    if dry_run:
        emit(plan, as_json, lambda: json.dumps(plan, indent=2))
        return
    if kind.costs and not yes:
        click.confirm(f"{json.dumps(plan, indent=2)}\nCreate this? It costs money until it ends", abort=True, err=True)
    record = Clusters().create(name, platform, parameters)
    emit({"name": record.name, "id": record.id, "platform": platform, "details": record.details}, as_json, lambda: (
        f"cluster {name}, {platform}, id {record.id}\n" + _lines(record.details) +
        f"vispark submit --cluster {name} SCRIPT runs a program on it"))


@command.command("list")
@dry_run_option
@json_option
def list_(dry_run: bool, as_json: bool) -> None:
    """List the clusters that are recorded here, and those with vispark's tags that are not."""
    found = Clusters().statuses(ask=not dry_run)
    emit({"clusters": [asdict(each) for each in found]}, as_json, lambda: _table(found))
    click.get_current_context().exit(UNKNOWN if any(each.state == _NOT_KNOWN for each in found) else YES)


@command.command("show")
@click.argument("name")
@dry_run_option
@json_option
def show(name: str, dry_run: bool, as_json: bool) -> None:
    """Show the cluster NAME; exit status 3 unless it is ready."""
    found = Clusters().status(name, ask=not dry_run)
    emit(asdict(found), as_json, lambda: f"cluster {found.name}, {found.platform}: {found.state}\n"
         f"  {'id':10} {found.id}\n" + _lines(found.details).rstrip("\n"))
    click.get_current_context().exit(YES if dry_run or found.state == READY else NO)


@command.command("doctor")
@click.argument("name")
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds for an answer.")
@dry_run_option
@json_option
def examine(name: str, timeout: float, dry_run: bool, as_json: bool) -> None:
    """Run a program on the cluster NAME that reports what each node has; exit status 3 if something is wrong."""
    record, settings = Clusters().submission(name)
    if hasattr(platform_of(record.platform), "send"):
        raise ClusterError(f"programs go to cluster {name} as steps, whose output stays in their logs: run gpu-worker "
                           "doctor on its machines")
    if dry_run:
        line = spark_submit.command_line(settings, [], "doctor.py")
        emit({"command": line}, as_json, lambda: shlex.join(line))
        return
    found = doctor.examine(settings, timeout)
    emit({"problems": found.problems, **found.answer}, as_json, lambda: _diagnosis(name, found))
    click.get_current_context().exit(NO if found.problems else YES)


@command.command("delete")
@click.argument("name")
@click.option("--id", "identity", default="", help="Its id, where there is no record of it here.")
@dry_run_option
@json_option
@answering
def delete(name: str, identity: str, dry_run: bool, as_json: bool) -> None:
    """Delete the cluster NAME with all that has its id, and forget it; what others created is left as it is."""
    was = Clusters().delete(name, identity, dry_run)
    emit({"name": name, "id": was.id, "was": was.state, "deleted": not dry_run}, as_json, lambda: (
        f"cluster {name}, {was.platform}, {was.state}: {'would be' if dry_run else 'is'} deleted"))


def _parameters(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise OptionError(f"a parameter is NAME=VALUE, not {each!r}")
        if name in found:
            raise OptionError(f"the parameter {name} is given twice")
        found[name] = value
    return found


def _lines(details: dict[str, str]) -> str:
    return "".join(f"  {name:10} {value}\n" for name, value in details.items() if value)


def _table(found: list[ClusterStatus]) -> str:
    if not found:
        return "no clusters"
    rows = [("name", "platform", "state", "recorded", "id"), *(
        (each.name, each.platform, each.state, "here" if each.is_recorded else "elsewhere", each.id) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def _diagnosis(name: str, found: doctor.Diagnosis) -> str:
    answer, gib = found.answer, 2 ** 30
    lines = [f"cluster {name}: {answer['master']}, Spark {answer['spark']}, device {answer['device']}, "
             f"{'computes' if answer['computes'] else 'does not compute'}"]
    for host, node in found.nodes().items():
        gpus = f", GPUs {', '.join(node['gpus'])}" if node["gpus"] else ", no GPU assigned"
        lines.append(f"  {host}: {node['tasks']} tasks, Python {node['python']}, vispark {node['vispark']}, "
                     f"{node['memory'] / gib:.0f} GiB, /dev/shm {node['shm'] / gib:.1f} GiB{gpus}")
    return "\n".join([*lines, *(f"  wrong: {each}" for each in found.problems)] if found.problems else
                     [*lines, "  nothing is wrong"])
