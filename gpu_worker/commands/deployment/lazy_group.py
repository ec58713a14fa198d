"""Group of commands that are loaded when they are used, for ``gpu-worker`` and ``vispark``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Group of commands whose modules are imported when they are used.

    Parameters
    ----------
    modules : mapping of str to str
        Of each command's name the module that has it, as ``command``, or module and name with a colon between.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.modules and cmd_name not in self.commands:
            module, _, name = self.modules[cmd_name].partition(":")
            self.add_command(getattr(import_module(module), name or "command"), cmd_name)
        return super().get_command(ctx, cmd_name)
