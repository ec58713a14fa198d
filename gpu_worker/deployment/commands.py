"""Commands ``gpu-worker clusters``: files for platforms, and clusters of EMR."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from gpu_worker.deployment import cluster_template, templates
from gpu_worker.deployment.emr import EmrClusters
from gpu_worker.deployment.records import RecordStore, checked_name
from gpu_worker.protocol.errors import OptionError

region_option = click.option("--region", default="", help="Region of AWS. [default: as AWS's own settings say]")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def clusters() -> None:
    """Bring the worker to clusters: files for each platform, and clusters of EMR (extra aws)."""


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


@clusters.command()
@click.argument("name")
@click.option("-p", "--parameter", "given", multiple=True, metavar="KEY=VALUE", help="A parameter of the template.")
@click.option("--template", "template_file", default="", help="A template of one's own. [default: the package's]")
@region_option
@click.option("--dry-run", is_flag=True, help="Check the parameters, print what would be created, and ask for nothing.")
def create(name: str, given: tuple[str, ...], template_file: str, region: str, dry_run: bool) -> None:
    """Create a cluster of EMR with GPUs, which ends when it is idle; one that was cut short goes on."""
    template = cluster_template.load(template_file)
    parameters = _parameters(given)
    if dry_run:
        click.echo(json.dumps({"name": checked_name(name), "stack": f"vispark-{name}",
                               "parameters": template.check(parameters)}, indent=2))
        return
    record = EmrClusters(RecordStore(), region).create(name, template, parameters)
    click.echo(f"cluster {name} is on its way in {record.region}, with the tag vispark:id={record.id}; "
               "gpu-worker clusters list shows its state")


@clusters.command("list")
@region_option
@json_option
def list_clusters(region: str, as_json: bool) -> None:
    """List the clusters of a region that were recorded here, or have vispark's tags."""
    found = EmrClusters(RecordStore(), region).states()
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    table = Table("name", "recorded", "stack", "cluster", "state", "master")
    for each in found:
        table.add_row(each.name, each.record or "elsewhere", each.stack or "none", each.cluster, each.state,
                      each.master)
    Console().print(table)


@clusters.command()
@click.argument("name")
@region_option
def connect(name: str, region: str) -> None:
    """Print what connects to a cluster: a tunnel, a step, and a notebook's cell."""
    click.echo(EmrClusters(RecordStore(), region).connect(name), nl=False)


@clusters.command()
@click.argument("name")
@click.option("--id", "identity", default="", help="Its tag vispark:id, where another machine recorded it.")
@region_option
@click.option("--dry-run", is_flag=True, help="Say what would be ended, and ask for nothing that changes anything.")
def stop(name: str, identity: str, region: str, dry_run: bool) -> None:
    """End a cluster that create made, and no other."""
    EmrClusters(RecordStore(), region).stop(name, identity, dry_run=dry_run)
    click.echo(f"cluster {name} {'would be' if dry_run else 'is'} ended")


def _parameters(given: tuple[str, ...]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise OptionError(f"a parameter is KEY=VALUE, not {each!r}")
        if key in parameters:
            raise OptionError(f"the parameter {key} is given twice")
        parameters[key] = value
    return parameters
