"""Commands ``top``, ``metrics`` and ``dashboard`` of ``gpu-worker``."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import click

from gpu_worker.commands.monitor import top as terminal
from gpu_worker.commands.monitor.samples import SharedSamples
from gpu_worker.commands.options import NO_DAEMON, runtime_dir_option
from gpu_worker.commands.web import server
from gpu_worker.system.paths import locate


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
    exposition = importlib.import_module("gpu_worker.commands.monitor.metrics")
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


@click.command()
@runtime_dir_option
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8050, show_default=True, help="0 is any that is free.")
@click.option("--uds", type=click.Path(dir_okay=False, path_type=Path), help="Listen at a Unix socket instead.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False), help="TLS certificate, in PEM.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="Its key, if it is in a file of its own.")
@click.option("--host-name", "names", multiple=True, help="A name under which browsers reach it; may be repeated.")
@click.option("--link", "only_link", is_flag=True, help="Print another link to the dashboard that runs.")
def dashboard(runtime_dir: str | None, listen: str, port: int, uds: Path | None, certificate: str | None,
              key: str | None, names: tuple[str, ...], only_link: bool) -> None:
    """Serve a page with sessions, memory and rates of this node, until Ctrl-C; it changes nothing.

    The link that it prints opens once, within five minutes.
    """
    # No other command needs a web server.
    pages = importlib.import_module("gpu_worker.commands.monitor.dashboard")
    directory = locate(runtime_dir).ensure()
    if only_link:
        click.echo(pages.another_link(directory))
        return
    pages.check_alone(directory)
    with (server.ending_on_sigterm(),
          server.listen_at_path(uds) if uds else server.listen(listen, port, bool(certificate)) as sock):
        served = pages.Dashboard(directory, sock, names, certificate, key)
        click.echo(served.link())
        served.run()
