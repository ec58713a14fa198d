"""Arguments of commands that run a program: its script, and the words behind it, which are the program's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from vispark.migrate.source.program import SourceProgram


class ScriptPath(click.Path):
    """Type of a program's path: a file of Python, or a notebook. What is none is refused before anything starts."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        SourceProgram.read(path)
        return path


def _noted(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program's words; those that are options of the command are named, as they may be meant for it."""
    own = {option for each in ctx.command.params if isinstance(each, click.Option) for option in each.opts}
    if misplaced := [word for word in words if word.partition("=")[0] in own and word.startswith("--")]:
        click.echo(f"vispark: {', '.join(misplaced)} behind the script: the program's, not vispark's, whose options "
                   "come before it", err=True)
    return words


#: A program, and its own arguments.
script = click.argument("script", type=ScriptPath())
arguments = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, callback=_noted)
