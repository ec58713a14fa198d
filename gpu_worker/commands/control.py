"""Commands ``stop``, ``unpublish``, ``logs`` and ``gpus`` of ``gpu-worker``."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from gpu_worker.commands.options import runtime_dir_option
from gpu_worker.protocol.messages import Unpublish
from gpu_worker.system import admin, log
from gpu_worker.system.paths import DISCOVERY_SCRIPT, locate

_FOLLOW_SECONDS = 0.2


@click.command()
@runtime_dir_option
def stop(runtime_dir: str | None) -> None:
    """Stop the daemon, whichever version it is of, and end all sessions."""
    admin.stop(runtime_dir=runtime_dir)
    click.echo("the GPU worker has ended")


@click.command()
@runtime_dir_option
@click.argument("name")
def unpublish(runtime_dir: str | None, name: str) -> None:
    """Take a publication back on this node; applications that have attached it keep it."""
    admin.administer(Unpublish(name), runtime_dir=runtime_dir)
    click.echo(f"{name} is published no more")


@click.command()
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


@click.command()
@click.option("--script", is_flag=True, help="Print the path of the script instead.")
def gpus(script: bool) -> None:
    """Print the addresses of this machine's GPUs, as Spark's discovery script gives them.

    Its path goes into spark.worker.resource.gpu.discoveryScript, or spark.executor.resource.gpu.discoveryScript.
    """
    if script:
        click.echo(str(DISCOVERY_SCRIPT))
    else:
        sys.exit(subprocess.run(["/bin/sh", str(DISCOVERY_SCRIPT)], check=False).returncode)


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
