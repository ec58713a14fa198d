"""Command line: ``gpu-worker start | stop | status | top | metrics | dashboard | ...``."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gpu_worker.cli_options import NO_DAEMON, runtime_dir_option
from gpu_worker.daemon import service
from gpu_worker.deployment.commands import clusters
from gpu_worker.monitor.commands import dashboard, metrics, top
from gpu_worker.mpi.cluster import Cluster
from gpu_worker.protocol.errors import VisparkError, WorkerUnavailable
from gpu_worker.protocol.messages import ListPublications, SessionStatus, Status, StatusReport, Unpublish
from gpu_worker.system import admin, doctor, log
from gpu_worker.system.paths import DISCOVERY_SCRIPT, locate

_FOLLOW_SECONDS = 0.2


class _Commands(click.Group):
    """Commands whose errors are one message each."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerUnavailable as error:
            click.echo(f"gpu-worker: {error}", err=True)
            ctx.exit(NO_DAEMON if ctx.invoked_subcommand in ("status", "stop") else 1)
        except VisparkError as error:
            click.echo(f"gpu-worker: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Control this node's GPU worker, which keeps the partitions of vispark's RDDs."""


@main.command()
@runtime_dir_option
@click.option("--foreground", is_flag=True, help="Stay in the terminal.")
@click.option("--idle", type=click.FloatRange(min=0), help="End after this many seconds without a session.")
@click.option("--log-level", type=click.Choice(log.LEVELS), default="info", show_default=True)
@click.option("--hosts", envvar="VISPARK_HOSTS", default="",
              help="The daemons of the other nodes, for grids that span nodes: host:port, or a runtime directory of "
                   "this machine, with commas between. [env: VISPARK_HOSTS]")
@click.option("--listen", envvar="VISPARK_LISTEN", default="",
              help="address:port where other nodes' daemons reach this one. [env: VISPARK_LISTEN]")
@click.option("--key", envvar="VISPARK_KEY", type=click.Path(dir_okay=False, path_type=Path),
              help="A file with the key that all daemons share, mode 0600; needed for TCP. [env: VISPARK_KEY]")
@click.option("--tcp-port", envvar="VISPARK_TCP_PORT", type=click.IntRange(0, 65535), default=0, show_default="any",
              help="The port where drivers on other nodes reach their sessions; opened when one has to. "
                   "[env: VISPARK_TCP_PORT]")
def start(runtime_dir: str | None, foreground: bool, idle: float | None, log_level: str, hosts: str, listen: str,
          key: Path | None, tcp_port: int) -> None:
    """Start the daemon; one that runs already is as good."""
    directory = locate(runtime_dir).ensure()
    cluster = Cluster(directory, [host.strip() for host in hosts.split(",") if host.strip()], listen, key)
    log.to_file(directory.log, log_level)
    if foreground:
        log.to_stderr(log_level)
        started = service.serve(directory, idle, cluster=cluster, port=tcp_port)
    else:
        started = service.detach(directory, idle, cluster, tcp_port)
    if not started:
        click.echo(f"a GPU worker runs already in {directory.path}")
    elif not foreground:
        click.echo(f"a GPU worker runs in {directory.path}")


@main.command()
@runtime_dir_option
def stop(runtime_dir: str | None) -> None:
    """Stop the daemon, whichever version it is of, and end all sessions."""
    admin.stop(runtime_dir=runtime_dir)
    click.echo("the GPU worker has ended")


@main.command()
@runtime_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(runtime_dir: str | None, as_json: bool) -> None:
    """Show sessions, what they hold and how much memory it takes."""
    report = admin.administer(Status(), runtime_dir=runtime_dir)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        _print_status(report, Console())


@main.command()
@runtime_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def publications(runtime_dir: str | None, as_json: bool) -> None:
    """Show what applications have published on this node, its bytes, its readers and when it ends."""
    report = admin.administer(ListPublications(), runtime_dir=runtime_dir)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2))
        return
    table = Table("name", "VRDD", "application", "partitions", "bytes", "readers", "ends")
    for each in report.publications:
        ends = f"in {each.expires:.0f} s" if each.expires >= 0 else "with its users, and its lease after that"
        table.add_row(each.name, each.dataset, each.application, str(each.partitions), f"{each.nbytes:,}",
                      str(each.readers), ends)
    Console().print(table)


@main.command()
@runtime_dir_option
@click.argument("name")
def unpublish(runtime_dir: str | None, name: str) -> None:
    """Take a publication back on this node; applications that have attached it keep it."""
    admin.administer(Unpublish(name), runtime_dir=runtime_dir)
    click.echo(f"{name} is published no more")


@main.command()
@runtime_dir_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="Lines of each log.")
def logs(runtime_dir: str | None, follow: bool, lines: int) -> None:
    """Print the daemon's log and that of the device processes."""
    directory = locate(runtime_dir)
    paths = [path for path in (directory.log, directory.process_log) if path.exists()]
    if not paths:
        raise click.ClickException(f"there is no log in {directory.path}")
    for path in paths:
        click.echo(f"==> {path} <==")
        click.echo(log.tail(path, lines), nl=False)
    if follow:
        _follow(paths)


@main.command("doctor")
@runtime_dir_option
@click.option("--cache-dir", type=click.Path(file_okay=False),
              help="Where compiled kernels lie, if spark.vispark.cacheDir says so.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def examine(runtime_dir: str | None, cache_dir: str | None, as_json: bool) -> None:
    """Report what this machine has, what is missing, and what mends it; exit status 1 if programs cannot run."""
    findings = doctor.examine(runtime_dir, cache_dir)
    if as_json:
        click.echo(doctor.as_json(findings))
    else:
        _print_findings(findings)
    if any(finding.is_bad for finding in findings):
        sys.exit(1)


@main.command()
@click.option("--script", is_flag=True, help="Print the path of the script instead.")
def gpus(script: bool) -> None:
    """Print the addresses of this machine's GPUs, as Spark's discovery script gives them.

    Its path goes into spark.worker.resource.gpu.discoveryScript, or spark.executor.resource.gpu.discoveryScript.
    """
    if script:
        click.echo(str(DISCOVERY_SCRIPT))
    else:
        sys.exit(subprocess.run(["/bin/sh", str(DISCOVERY_SCRIPT)], check=False).returncode)


main.add_command(clusters)
main.add_command(top)
main.add_command(metrics)
main.add_command(dashboard)


def _follow(paths: list[Path]) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(path.open(errors="replace")) for path in paths]
        for file in files:
            file.seek(0, 2)
        while True:
            for file in files:
                click.echo(file.read(), nl=False)
            sys.stdout.flush()
            time.sleep(_FOLLOW_SECONDS)


def _print_findings(findings: list[doctor.Finding]) -> None:
    for finding in findings:
        click.echo(f"{finding.state:9} {finding.name:18} {finding.found}")
        if finding.mend:
            click.echo(f"{'':28} -> {finding.mend}")
    bad = [finding.name for finding in findings if finding.is_bad]
    click.echo(f"missing: {', '.join(bad)}" if bad else "vispark runs here")


def _print_status(report: StatusReport, console: Console) -> None:
    console.print(f"worker {report.worker}, process {report.pid}, up {report.uptime:.0f} s, "
                  f"{len(report.sessions)} sessions", highlight=False)
    for session in report.sessions:
        _print_session(session, console)


def _print_session(session: SessionStatus, console: Console) -> None:
    process = f"process {session.pid}" if session.pid else "no process"
    console.print(f"\nsession {session.session} ({session.application}): {process}, "
                  f"epoch {session.epoch}, {session.clients} clients, lease: {session.lease}", highlight=False,
                  markup=False)
    if session.report is None:
        console.print("  no report", highlight=False)
        return
    table = Table("VRDD", "name", "partitions", "dtype", "bytes", "device")
    for held in session.report.vrdds:
        table.add_row(str(held.vrdd), held.name, str(held.partitions), held.dtype, f"{held.nbytes:,}", held.device)
    console.print(table)
    for memory in session.report.memory:
        console.print(f"  {memory.device}: {memory.used:,} of {memory.total:,} bytes in use", highlight=False)
    console.print(f"  host: {session.report.host_bytes:,} bytes, {session.report.requests} requests", highlight=False)
