"""Commands ``gpu-worker clusters``: files for platforms."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_worker.deployment import templates


@click.group()
def clusters() -> None:
    """Bring the worker to clusters: files for each platform."""


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
