"""Answers of commands about clusters and programs: exit statuses, and output as JSON or as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

#: Exit statuses: yes; wrong use; no, as what is refused, not ready or different; not known.
YES, USAGE, NO, UNKNOWN = 0, 2, 3, 4

#: Name under which a command's context says that ``--json`` was given.
_AS_JSON = "vispark.json"


def expect_json(ctx: click.Context, args: Sequence[str]) -> None:
    """Note whether ``--json`` is among the words of a command line, before its commands read them."""
    ctx.meta[_AS_JSON] = "--json" in args


@contextmanager
def wrong_use_as_json(ctx: click.Context) -> Iterator[None]:
    """Print wrong use as JSON, too, where ``--json`` was given; click says it on standard error."""
    is_asked = ctx.meta.get(_AS_JSON)
    try:
        yield
    except click.UsageError as error:
        if is_asked:
            _echo_error(error.format_message(), USAGE)
        raise


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta[_AS_JSON] = value
    return value


json_option = click.option("--json", "as_json", is_flag=True, callback=_remember, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done; ask nobody, change nothing.")


def emit_error(ctx: click.Context, message: str, status: int) -> None:
    """Print the reason why a command has no answer, on standard error, and where ``--json`` was given as JSON too."""
    click.echo(f"vispark: {message}", err=True)
    if ctx.meta.get(_AS_JSON):
        _echo_error(message, status)


def _echo_error(message: str, status: int) -> None:
    click.echo(json.dumps({"error": message, "status": status}, ensure_ascii=False, indent=2))


def emit(document: dict[str, Any], as_json: bool, text: Callable[[], str]) -> None:
    """Print a command's answer, as JSON or as text.

    Parameters
    ----------
    document : dict
        The answer as JSON has it.
    as_json : bool
        Whether ``--json`` was given.
    text : Callable
        What makes the text of it.

    Examples
    --------
    >>> emit({"loops": 2}, True, lambda: "2 loops")
    {"loops": 2}
    >>> emit({"loops": 2}, False, lambda: "2 loops")
    2 loops
    """
    click.echo(json.dumps(document, ensure_ascii=False, indent=2 if len(document) > 1 else None) if as_json else text())
