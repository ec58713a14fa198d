"""Command lines of ``spark-submit``: its options, which are passed on, and the settings of a cluster before them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from gpu_worker.commands.deployment.platforms import SubmitSettings
from vispark.errors import OptionError
from vispark.options import Options

#: Options of ``spark-submit`` that take a value, and those that take none.
VALUES = ("archives", "class", "conf", "deploy-mode", "driver-class-path", "driver-cores", "driver-java-options",
          "driver-library-path", "driver-memory", "exclude-packages", "executor-cores", "executor-memory", "files",
          "jars", "keytab", "master", "name", "num-executors", "packages", "principal", "properties-file", "proxy-user",
          "py-files", "queue", "repositories", "total-executor-cores")
SWITCHES = ("load-spark-defaults", "supervise", "verbose")


def settings_of(conf: Iterable[str]) -> dict[str, str]:
    """Return settings that are written as ``NAME=VALUE``, of which vispark's own are checked.

    Raises
    ------
    OptionError
        If one is not of that form, has no name, or vispark does not take it.

    Examples
    --------
    >>> settings_of(["spark.cores.max=4"])
    {'spark.cores.max': '4'}
    """
    settings = named_settings(conf)
    Options.read(settings.items())
    return settings


def named_settings(conf: Iterable[str]) -> dict[str, str]:
    """Return settings that are written as ``NAME=VALUE``, unchecked."""
    settings: dict[str, str] = {}
    for setting in conf:
        name, separator, value = setting.partition("=")
        if not separator or not name:
            raise OptionError(f"a setting is NAME=VALUE, not {setting!r}")
        settings[name] = value
    return settings


def command_line(settings: SubmitSettings, user_options: Sequence[tuple[str, str | None]], script: str,
                 arguments: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs a script with the settings of a cluster.

    Parameters
    ----------
    settings : SubmitSettings
        The cluster's.
    user_options : sequence of (str, str or None)
        Options of the user's, by name without hyphens; None is the value of one that takes none. They come last, so
        that they go before the cluster's.
    script : str
        Path or address of the program.
    arguments : sequence of str
        The program's own.

    Examples
    --------
    >>> line = command_line(SubmitSettings("local[2]", {"spark.vispark.device": "host"}), [("name", "demo")], "job.py")
    >>> line[1:]
    ['--master', 'local[2]', '--conf', 'spark.vispark.device=host', '--name', 'demo', 'job.py']
    """
    settings_of([value for name, value in user_options if name == "conf" and value is not None])
    names = {name for name, _ in user_options}
    line = [f"{_find_spark_home()}/bin/spark-submit"]
    line += [] if "master" in names or not settings.master else ["--master", settings.master]
    options = list(settings.options)
    for name, value in zip(options[::2], options[1::2], strict=True):
        line += [] if name.removeprefix("--") in names else [name, value]
    for name, value in settings.conf.items():
        line += ["--conf", f"{name}={value}"]
    for name, user_value in user_options:
        line += [f"--{name}"] if user_value is None else [f"--{name}", user_value]
    return [*line, script, *arguments]


def environment(settings: SubmitSettings, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of ``spark-submit``: the cluster's variables, and this Python for driver and workers."""
    variables = dict(os.environ if inherited is None else inherited)
    variables.setdefault("PYSPARK_PYTHON", sys.executable)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [_own_path(variables), variables.get("PYTHONPATH", "")]))
    return variables | settings.environment


def run(settings: SubmitSettings, user_options: Sequence[tuple[str, str | None]], script: str,
        arguments: Sequence[str] = (), capture: bool = False,
        timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``spark-submit``, whose output goes where this process's goes, or is returned.

    Raises
    ------
    OptionError
        If it cannot be started.
    """
    with with_secrets(settings, user_options) as options:
        line = command_line(settings, options, script, arguments)
        try:
            return subprocess.run(line, env=environment(settings), capture_output=capture, text=True, errors="replace",
                                  timeout=timeout)
        except OSError as error:
            raise OptionError(f"{line[0]} cannot be started: {error}") from error


@contextmanager
def with_secrets(settings: SubmitSettings,
                 options: Sequence[tuple[str, str | None]]) -> Iterator[Sequence[tuple[str, str | None]]]:
    """Yield the user's options with a file of properties of its own: the one that would be read, and the secrets.

    Where there are no secrets, the options are as they were given.
    """
    if not settings.secrets:
        yield options
        return
    named = next((value for name, value in reversed(options) if name == "properties-file"), None)
    path = Path(named) if named is not None else defaults_file()
    text = path.read_text(encoding="utf-8") if named is not None or path.exists() else ""
    text += "".join(f"\n{name} {value}" for name, value in settings.secrets.items())
    with tempfile.NamedTemporaryFile("w", prefix="vispark-", suffix=".conf", encoding="utf-8") as file:
        file.write(text)    # made with mode 0600
        file.flush()
        yield [*[each for each in options if each[0] != "properties-file"], ("properties-file", file.name)]


def defaults_file() -> Path:
    """Return the path of ``spark-defaults.conf`` that ``spark-submit`` reads where it is there."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    return Path(folder) / "spark-defaults.conf"


def _own_path(variables: Mapping[str, str]) -> str:
    """Return the folder of vispark where this Python finds it by the working directory alone, as in a checkout."""
    root = str(Path(__file__).resolve().parents[3])
    is_installed = any(Path(each).resolve() == Path(root) for each in sys.path if each) and "site-packages" in root
    return "" if is_installed or root in variables.get("PYTHONPATH", "").split(os.pathsep) else root
