"""Commands about clusters, of ``gpu-worker clusters`` and of ``vispark cluster``: the same ones, over the same records.

A group of them gives its commands the :class:`~gpu_worker.commands.deployment.manager.Clusters` of the platforms that
it knows.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gpu_worker.commands.deployment import templates
from gpu_worker.commands.deployment.manager import NOT_KNOWN, Clusters
from gpu_worker.commands.deployment.output import NO, UNKNOWN, YES, dry_run_option, emit, json_option
from gpu_worker.commands.deployment.platforms import READY, ClusterStatus, platform_of
from gpu_worker.protocol.errors import OptionError

_region_option = click.option("--region", default="", help="Region of AWS. [default: as AWS's own settings say]")
_identity_option = click.option("--id", "identity", default="", help="Its id, where there is no record of it here.")


@click.command()
@click.argument("name")
@click.option("--platform", default="", help="What kind of cluster. [default: the only one]")
@click.option("-p", "--parameter", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter of the platform.")
@click.option("--parameters", "is_list", is_flag=True, help="List the platform's parameters, and do nothing.")
@_region_option
@click.option("--yes", is_flag=True, help="Create what costs money without a question.")
@dry_run_option
@json_option
@click.pass_obj
def create(clusters: Clusters, name: str, platform: str, pairs: tuple[str, ...], is_list: bool, region: str, yes: bool,
           dry_run: bool, as_json: bool) -> None:
    """Create the cluster NAME; one whose creation was cut short goes on."""
    platform = clusters.chosen(platform)
    kind = platform_of(platform)
    if is_list:
        rows = [{"name": each.name, "default": each.default, "meaning": each.meaning} for each in kind.parameters]
        emit({"parameters": rows}, as_json, lambda: "\n".join(
            f"{each['name']:16} {each['default'] or '-':24} {each['meaning']}" for each in rows))
        return
    parameters = ({"region": region} if region else {}) | _parameters(pairs)
    plan = clusters.plan(name, platform, parameters)
    if dry_run:
        emit(plan, as_json, lambda: json.dumps(plan, indent=2))
        return
    if kind.costs and not yes:
        click.confirm(f"{json.dumps(plan, indent=2)}\nCreate this? It costs money until it ends", abort=True, err=True)
    record = clusters.create(name, platform, parameters)
    emit({"name": record.name, "id": record.id, "platform": platform, "details": record.details}, as_json, lambda: (
        f"cluster {name}, {platform}, id {record.id}\n" + _lines(record.details) +
        f"vispark submit --cluster {name} SCRIPT runs a program on it"))


@click.command("list")
@_region_option
@dry_run_option
@json_option
@click.pass_obj
def list_(clusters: Clusters, region: str, dry_run: bool, as_json: bool) -> None:
    """List the clusters that are recorded here, and those with vispark's tags that are not."""
    listed = clusters.statuses(not dry_run, region)
    emit({"clusters": [asdict(each) for each in listed]}, as_json, lambda: _table(listed))
    click.get_current_context().exit(UNKNOWN if any(each.state == NOT_KNOWN for each in listed) else YES)


@click.command()
@click.argument("name")
@dry_run_option
@json_option
@click.pass_obj
def show(clusters: Clusters, name: str, dry_run: bool, as_json: bool) -> None:
    """Show the cluster NAME; exit status 3 unless it is ready."""
    status = clusters.status(name, ask=not dry_run)
    emit(asdict(status), as_json, lambda: f"cluster {status.name}, {status.platform}: {status.state}\n"
         f"  {'id':10} {status.id}\n" + _lines(status.details).rstrip("\n"))
    click.get_current_context().exit(YES if dry_run or status.state == READY else NO)


@click.command()
@click.argument("name")
@_region_option
@click.pass_obj
def connect(clusters: Clusters, name: str, region: str) -> None:
    """Print what connects to the cluster NAME, as the command line of a program; of EMR a tunnel and a notebook's cell.
    """
    click.echo(clusters.connection(name, region), nl=False)


@click.command()
@click.argument("name")
@_identity_option
@_region_option
@dry_run_option
@json_option
@click.pass_obj
def delete(clusters: Clusters, name: str, identity: str, region: str, dry_run: bool, as_json: bool) -> None:
    """Delete the cluster NAME with all that has its id, and forget it; what others created is left as it is."""
    was = clusters.delete(name, identity, dry_run, region)
    emit({"name": name, "id": was.id, "was": was.state, "deleted": not dry_run}, as_json, lambda: (
        f"cluster {name}, {was.platform}, {was.state}: {'would be' if dry_run else 'is'} deleted"))


def add_to(group: click.Group) -> None:
    """Add the commands that all groups have."""
    for command in (create, list_, show, connect, delete):
        group.add_command(command)


@click.group()
@click.pass_context
def clusters(context: click.Context) -> None:
    """Bring the worker to clusters: files for each platform, and clusters of EMR (extra aws)."""
    context.obj = Clusters(("emr",), "gpu-worker clusters")


add_to(clusters)
clusters.add_command(delete, "stop")        # its name up to 0.12


@clusters.command("templates")
@click.argument("platform", required=False, default="")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the files go.")
@click.option("--program", default="", help="Path of gpu-worker on the machines. [default: this installation's]")
@click.option("--image", default="", help="Name of the container image. [default: vispark:latest]")
@click.option("--replace", is_flag=True, help="Write over files that differ.")
def write_templates(platform: str, out: Path | None, program: str, image: str, replace: bool) -> None:
    """Write units, manifests, scripts and templates of a PLATFORM, or of all; list the platforms without --out."""
    if out is None:
        click.echo("\n".join(templates.platforms()))
        return
    for path in templates.write(platform, out, templates.values(program, image), replace=replace):
        click.echo(path)


def _parameters(texts: tuple[str, ...]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise OptionError(f"a parameter is NAME=VALUE, not {text!r}")
        if name in parameters:
            raise OptionError(f"the parameter {name} is given twice")
        parameters[name] = value
    return parameters


def _lines(details: dict[str, str]) -> str:
    return "".join(f"  {name:10} {value}\n" for name, value in details.items() if value)


def _table(statuses: list[ClusterStatus]) -> str:
    if not statuses:
        return "no clusters"
    rows = [("name", "platform", "state", "recorded", "id"), *(
        (each.name or "?", each.platform, each.state, "here" if each.is_recorded else "elsewhere", each.id)
        for each in statuses)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + [f"{each.name or '?'}: {each.details['error']}" for each in statuses
                              if "error" in each.details])
