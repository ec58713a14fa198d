"""Command ``gpu-worker start``, which becomes the daemon; what it imports, each daemon pays for."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_worker.commands.options import runtime_dir_option
from gpu_worker.daemon import service
from gpu_worker.exchange.mpi.cluster import Cluster
from gpu_worker.system import log
from gpu_worker.system.paths import locate


@click.command()
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
