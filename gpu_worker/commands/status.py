"""Commands ``status`` and ``publications`` of ``gpu-worker``: what a daemon holds, once."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

from gpu_worker.commands.options import runtime_dir_option
from gpu_worker.protocol.messages import ListPublications, SessionStatus, Status, StatusReport
from gpu_worker.system import admin


@click.command()
@runtime_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(runtime_dir: str | None, as_json: bool) -> None:
    """Show sessions, what they hold and how much memory it takes."""
    report = admin.administer(Status(), runtime_dir=runtime_dir)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        _print_status(report, Console())


@click.command()
@runtime_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def publications(runtime_dir: str | None, as_json: bool) -> None:
    """Show what applications have published on this node, its bytes, its readers and when it ends."""
    report = admin.administer(ListPublications(), runtime_dir=runtime_dir)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2))
        return
    table = Table("name", "VRDD", "application", "partitions", "bytes", "readers", "ends")
    for entry in report.publications:
        ends = f"in {entry.expires:.0f} s" if entry.expires >= 0 else "with its users, and its lease after that"
        table.add_row(entry.name, entry.dataset, entry.application, str(entry.partitions), f"{entry.nbytes:,}",
                      str(entry.readers), ends)
    Console().print(table)


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
    if session.report.exchange:
        console.print(f"  cells to other nodes: {session.report.sent:,} bytes by {session.report.exchange}",
                      highlight=False, markup=False)
