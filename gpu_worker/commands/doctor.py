"""Command ``gpu-worker doctor``."""

from __future__ import annotations

import sys

import click

from gpu_worker.commands.options import runtime_dir_option
from gpu_worker.system.doctor import Finding, as_json, examine


@click.command()
@runtime_dir_option
@click.option("--cache-dir", type=click.Path(file_okay=False),
              help="Where compiled kernels lie, if spark.vispark.cacheDir says so.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def doctor(runtime_dir: str | None, cache_dir: str | None, is_json: bool) -> None:
    """Report what this machine has, what is missing, and what mends it; exit status 1 if programs cannot run."""
    findings = examine(runtime_dir, cache_dir)
    if is_json:
        click.echo(as_json(findings))
    else:
        _print_findings(findings)
    if any(finding.is_bad for finding in findings):
        sys.exit(1)


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        click.echo(f"{finding.state:9} {finding.name:18} {finding.found}")
        if finding.mend:
            click.echo(f"{'':28} -> {finding.mend}")
    bad = [finding.name for finding in findings if finding.is_bad]
    click.echo(f"missing: {', '.join(bad)}" if bad else "vispark runs here")
