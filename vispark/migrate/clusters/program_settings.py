"""Settings of a program, each with its source: defaults, files, the environment, a cluster, the command line."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from vispark.errors import OptionError
from vispark.options import OPTIONS, PREFIX, Options

DEFAULT = "default"


@dataclass(frozen=True)
class SourcedSetting:
    """Setting with the place that it comes from, and the places whose values it hides."""

    name: str
    value: str
    source: str
    hidden: tuple[str, ...] = ()


def merged(layers: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, SourcedSetting]:
    """Return the settings in force, by name: vispark's defaults first, then each layer over those before it.

    Parameters
    ----------
    layers : sequence of (str, mapping)
        Sources with their settings, the weakest first.

    Examples
    --------
    >>> found = merged([("a file", {"spark.cores.max": "2"}), ("--conf", {"spark.cores.max": "4"})])
    >>> found["spark.cores.max"]
    SourcedSetting(name='spark.cores.max', value='4', source='--conf', hidden=('a file',))
    """
    in_force = {PREFIX + each.name: SourcedSetting(PREFIX + each.name, str(each.default), DEFAULT) for each in OPTIONS}
    for source, settings in layers:
        for name, value in settings.items():
            was = in_force.get(name)
            hidden = (*was.hidden, was.source) if was and was.source != DEFAULT else ()
            in_force[name] = SourcedSetting(name, value, source, hidden)
    return in_force


def properties(path: Path) -> dict[str, str]:
    """Return the settings of a file of properties, as ``spark-defaults.conf``.

    Raises
    ------
    OptionError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "spark-defaults.conf"
    ...     _ = path.write_text("# ours\\nspark.cores.max   4\\nspark.app.name=demo\\n")
    ...     properties(path)
    {'spark.cores.max': '4', 'spark.app.name': 'demo'}
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the settings {path} cannot be read: {error}") from error
    values = {}
    for line in map(str.strip, lines):
        if line and line[0] not in "#!":
            place = next((each for each, letter in enumerate(line) if letter in "=: \t"), len(line))
            values[line[:place]] = line[place:].lstrip(" \t").removeprefix("=").removeprefix(":").strip()
    return values


def of_submit_arguments(text: str) -> dict[str, str]:
    """Return the settings in ``PYSPARK_SUBMIT_ARGS``, which count where a script is run by Python itself.

    Examples
    --------
    >>> of_submit_arguments("--master local[2] --conf spark.cores.max=4 pyspark-shell")
    {'spark.master': 'local[2]', 'spark.cores.max': '4'}
    """
    words, settings = shlex.split(text), {}
    for word, following in itertools.pairwise(words):
        if word == "--master":
            settings["spark.master"] = following
        elif word in ("--conf", "-c") and "=" in following:
            name, _, value = following.partition("=")
            settings[name] = value
    return settings


def problems(settings: Mapping[str, SourcedSetting]) -> list[str]:
    """Return problems: settings that Spark or vispark would refuse, or wait for in vain, each with its source.

    Examples
    --------
    >>> problems(merged([("--conf", {"spark.vispark.devise": "host"})]))
    ['there is no option spark.vispark.devise; the nearest is spark.vispark.device (--conf)']
    """
    return [*_of_options(settings), *_of_gpus(settings), *_of_executors(settings)]


def _of_options(settings: Mapping[str, SourcedSetting]) -> Iterator[str]:
    for setting in settings.values():
        if setting.name.startswith(PREFIX) and setting.source != DEFAULT:
            try:
                Options.read([(setting.name, setting.value)])
            except OptionError as error:
                yield f"{error} ({setting.source})"


def _of_gpus(settings: Mapping[str, SourcedSetting]) -> Iterator[str]:
    executor, task = (settings.get(f"spark.{of}.resource.gpu.amount") for of in ("executor", "task"))
    values = {each: _number(each) for each in (executor, task) if each is not None}
    for setting, value in values.items():
        if value is None or value < 0:
            yield f"{setting.name}={setting.value} is no number of GPUs ({setting.source})"
    if task is not None and executor is None:
        yield (f"{task.name}={task.value}, and executors have no GPU: set spark.executor.resource.gpu.amount "
               f"({task.source})")
    elif task is not None and executor is not None and (values[task] or 0) > (values[executor] or 0):
        yield (f"{task.name}={task.value} is more than an executor has, {executor.value}: no task would ever start "
               f"({task.source})")
    elif executor is not None and task is None:
        yield (f"{executor.name}={executor.value}, and no share for tasks: set spark.task.resource.gpu.amount to GPUs "
               f"divided by cores ({executor.source})")
    master = settings.get("spark.master")
    if executor is not None and master is not None and master.value.startswith("local"):
        yield f"{executor.name} has no effect on {master.value}: tasks run in the driver ({executor.source})"


def _of_executors(settings: Mapping[str, SourcedSetting]) -> Iterator[str]:
    prefix = "spark.dynamicAllocation."
    most = settings.get(f"{prefix}maxExecutors")
    for name in ("minExecutors", "initialExecutors"):
        setting = settings.get(prefix + name)
        if setting and most and (_number(setting) or 0) > (_number(most) or 0):
            yield f"{setting.name}={setting.value} is more than {most.name}={most.value} ({setting.source})"
    cores, whole = settings.get("spark.executor.cores"), settings.get("spark.cores.max")
    if cores and whole and (_number(cores) or 0) > (_number(whole) or 0):
        yield (f"{cores.name}={cores.value} is more than {whole.name}={whole.value}: no executor would ever start "
               f"({cores.source})")


def _number(setting: SourcedSetting) -> Fraction | None:
    try:
        return Fraction(setting.value)
    except (ValueError, ZeroDivisionError):
        return None
