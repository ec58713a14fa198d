"""Commands ``vispark config``: the settings that a program would have, where they come from, and whether they fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.clusters import spark_submit
from vispark.migrate.clusters.program_settings import (
    DEFAULT,
    SourcedSetting,
    merged,
    of_submit_arguments,
    problems,
    properties,
)
from vispark.migrate.errors import NO, YES
from vispark.options import OPTIONS, PREFIX


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which settings are meant."""
    for option in (click.option("--cluster", default="", help="As vispark submit has it."),
                   click.option("--conf", multiple=True, metavar="NAME=VALUE", help="As vispark submit has it."),
                   click.option("--properties-file", type=click.Path(dir_okay=False, path_type=Path),
                                help="In place of spark-defaults.conf."), json_option):
        function = option(function)
    return function


@click.group("config")
def command() -> None:
    """Show, explain and check the settings that vispark submit would use, and where each comes from.

    Without --cluster, settings in $PYSPARK_SUBMIT_ARGS count, as they do where Python runs the script.
    """


@command.command("show")
@click.option("--all", "has_defaults", is_flag=True, help="With the defaults of vispark's options.")
@_options
def show(has_defaults: bool, cluster: str, conf: tuple[str, ...], properties_file: Path | None, as_json: bool) -> None:
    """List the settings, with the place that each comes from; what is set in code comes on top of them."""
    settings = [each for each in _settings(cluster, conf, properties_file).values()
                if has_defaults or each.source != DEFAULT]
    emit({"settings": [asdict(each) for each in settings]}, as_json, lambda: _table(settings))


@command.command("explain")
@click.argument("name")
@_options
def explain(name: str, cluster: str, conf: tuple[str, ...], properties_file: Path | None, as_json: bool) -> None:
    """Say what the setting NAME means, its default, its value here, and what that hides."""
    settings = _settings(cluster, conf, properties_file)
    option = next((each for each in OPTIONS if name in (each.name, PREFIX + each.name)), None)
    full = PREFIX + option.name if option else name
    if option is None and full not in settings:
        raise click.UsageError(f"{name} is not set, and no option of vispark's: these are "
                               f"{', '.join(each.name for each in OPTIONS)}")
    setting = settings[full]
    document: dict[str, Any] = asdict(setting) | ({"meaning": option.meaning, "default": str(option.default),
                                                  "unit": option.unit} if option else {})
    emit(document, as_json, lambda: _explained(setting, document))


@command.command("check")
@_options
def check(cluster: str, conf: tuple[str, ...], properties_file: Path | None, as_json: bool) -> None:
    """Look for settings that Spark or vispark refuse, or that wait in vain; exit status 3 if there are some."""
    wrong = problems(_settings(cluster, conf, properties_file))
    emit({"problems": wrong}, as_json, lambda: "\n".join(wrong) or "nothing is wrong")
    click.get_current_context().exit(NO if wrong else YES)


def _settings(cluster: str, conf: tuple[str, ...], properties_file: Path | None) -> dict[str, SourcedSetting]:
    path = properties_file or spark_submit.defaults_file()
    layers = [(str(path), properties(path))] if properties_file or path.exists() else []
    if cluster:
        _, settings = Clusters().submission(cluster)
        of_cluster = {"spark.master": settings.master, **settings.conf, **dict.fromkeys(settings.secrets, "(hidden)")}
        layers.append((f"cluster {cluster}", of_cluster))
    else:
        layers.append(("PYSPARK_SUBMIT_ARGS", of_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))))
    layers.append(("--conf", spark_submit.named_settings(conf)))
    return merged(layers)


def _table(settings: list[SourcedSetting]) -> str:
    if not settings:
        return "nothing is set; --all shows the defaults of vispark's options"
    widths = [max(len(getattr(each, name)) for each in settings) for name in ("name", "value")]
    return "\n".join(f"{each.name:{widths[0]}}  {each.value:{widths[1]}}  {each.source}" +
                     (f", over {', '.join(each.hidden)}" if each.hidden else "") for each in settings)


def _explained(setting: SourcedSetting, document: dict[str, Any]) -> str:
    lines = [f"{setting.name} = {setting.value or 'empty'}, from {setting.source}"]
    lines += [f"  over {', '.join(setting.hidden)}"] if setting.hidden else []
    if "meaning" in document:
        default = f"{document['default'] or 'empty'} {document['unit']}".rstrip()
        lines += [f"  default {default}", f"  {document['meaning']}"]
    else:
        lines.append("  a setting of Spark's")
    return "\n".join(lines)
