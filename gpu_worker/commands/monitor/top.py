"""Sessions of a daemon in the terminal, again and again."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_worker.commands.monitor.samples import Rates, Sample, partitions, rates, sample
from gpu_worker.protocol.messages import SessionStatus

#: Columns of text that goes into a file or a pipe.
_WIDTH = 160
_RATES = ("asked/s", "replayed/s", "sent/s", "busy")


def view(latest: Sample, speeds: Mapping[str, Rates]) -> Group:
    """Return a sample as what the terminal shows: a line for the daemon, a row for each session."""
    if latest.report is None:
        return Group(Text(f"down: {latest.reason}"))
    report = latest.report
    head = Text(f"worker {report.worker}, process {report.pid}, up {report.uptime:.0f} s, "
                f"{len(report.sessions)} sessions")
    # The first look has no rates.
    table = Table("application", "process", "clients", "VRDDs", "parts", "devices", "host", *(_RATES if speeds else ()),
                  box=None, pad_edge=False)
    for place in (0, 5):
        table.columns[place].no_wrap = True
    for session in report.sessions:
        table.add_row(*_row(session, speeds.get(session.session))[:len(table.columns)])
    return Group(head, table) if report.sessions else Group(head)


def _row(session: SessionStatus, speed: Rates | None) -> list[str]:
    report = session.report
    name = session.application or session.session
    if report is None:
        return [name, str(session.pid), str(session.clients), "busy", "", "", "", "", "", "", ""]
    devices = ", ".join(f"{memory.device} {size(memory.used)}{_busy(speed, memory.device)}"
                        for memory in report.memory)
    moved = [f"{speed.requests:,.0f}", f"{speed.repeated:,.0f}", size(speed.sent), f"{speed.busy:.0%}"] if speed else \
        ["", "", "", ""]
    return [name, str(session.pid), str(session.clients), str(len({held.vrdd for held in report.vrdds})),
            str(partitions(session)), devices, size(report.host_bytes), *moved]


def _busy(speed: Rates | None, device: str) -> str:
    return f" {speed.devices[device]:.0%}" if speed and device in speed.devices else ""


def size(nbytes: float) -> str:
    """Return bytes as one would read them.

    Examples
    --------
    >>> size(999), size(1536000), size(2.5e9)
    ('999 B', '1.5 MB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def console() -> Console:
    """Return the terminal, or what stands in its place, which is wide enough for all columns."""
    standard = Console()
    return standard if standard.is_terminal else Console(width=_WIDTH)


def watch(runtime_dir: str | None, interval: float, console: Console,
          sleep: Callable[[float], None] = time.sleep) -> None:
    """Show a daemon's sessions until an interrupt; one that is down is asked again, and shown when it is back."""
    before: Sample | None = None
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            latest = sample(runtime_dir)
            live.update(view(latest, rates(before, latest)), refresh=True)
            before = latest
            sleep(interval)


def once(runtime_dir: str | None, console: Console) -> bool:
    """Show one sample, and return whether the daemon answered."""
    latest = sample(runtime_dir)
    console.print(view(latest, {}))
    return latest.report is not None


def as_json(runtime_dir: str | None) -> tuple[str, bool]:
    """Return one sample as a line of JSON, and whether the daemon answered."""
    latest = sample(runtime_dir)
    described = dataclasses.asdict(latest.report) if latest.report else {"down": latest.reason}
    return json.dumps(described), latest.report is not None
