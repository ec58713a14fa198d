"""Commands ``top`` and ``metrics`` of ``gpu-worker``."""

from __future__ import annotations

import contextlib
import importlib

import click

from gpu_worker.cli_options import NO_DAEMON, runtime_dir_option
from gpu_worker.monitor import top as terminal
from gpu_worker.monitor.samples import SharedSamples


@click.command()
@runtime_dir_option
@click.option("--interval", type=click.FloatRange(min=0.2), default=2.0, show_default=True,
              help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Look once, and print it.")
@click.option("--json", "as_json", is_flag=True, help="Look once, and print a line of JSON.")
def top(runtime_dir: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Show sessions, their memory and what they do, until Ctrl-C; a daemon that is down is shown when it is back."""
    is_up = True
    if as_json:
        line, is_up = terminal.as_json(runtime_dir)
        click.echo(line)
    elif once:
        is_up = terminal.once(runtime_dir, terminal.console())
    else:
        with contextlib.suppress(KeyboardInterrupt):
            terminal.watch(runtime_dir, interval, terminal.console())
    if not is_up:
        raise SystemExit(NO_DAEMON)


@click.command()
@runtime_dir_option
@click.option("--listen", default="127.0.0.1:9464", show_default=True, help="host:port of the server.")
@click.option("--once", is_flag=True, help="Print the metrics instead.")
def metrics(runtime_dir: str | None, listen: str, once: bool) -> None:
    """Serve metrics for Prometheus under /metrics, and /health."""
    # No other command needs prometheus_client and a server.
    exposition = importlib.import_module("gpu_worker.monitor.metrics")
    samples = SharedSamples(runtime_dir)
    if once:
        click.echo(exposition.text(samples).decode(), nl=False)
        return
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{listen} is not host:port", param_hint="--listen")
    with exposition.server(samples, host.strip("[]"), int(port)) as server:
        click.echo(f"metrics at http://{host}:{server.server_address[1]}/metrics")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
