"""Files for the platforms on which vispark runs: units, manifests, images, scripts and templates of clusters.

They lie below ``templates/``, one folder a platform, and are written out with the paths and names of the reader's own.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_worker.protocol.errors import OptionError, WorkerUnavailable

_FOLDER = Path(__file__).with_name("templates")
_VALUE = re.compile(r"@([A-Z]+)@")


def platforms() -> list[str]:
    """Return the names of the platforms that there are files for.

    Examples
    --------
    >>> platforms()
    ['databricks', 'dataproc', 'docker', 'emr', 'kubernetes', 'standalone', 'systemd', 'yarn']
    """
    return sorted(path.name for path in _FOLDER.iterdir() if path.is_dir())


def template(name: str) -> str:
    """Return the text of a template as it is kept, as ``emr/cluster.json``."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def values(program: str = "", image: str = "") -> dict[str, str]:
    """Return the names that stand in for @NAME@ in templates.

    Parameters
    ----------
    program : str
        Path of ``gpu-worker`` on the machines; where it is empty, that of this installation.
    image : str
        Name of the container image; ``vispark:latest`` where it is empty.

    Raises
    ------
    OptionError
        If the path is not absolute, as units have to name programs, or a name has blanks.

    Examples
    --------
    >>> values("/opt/vispark/bin/gpu-worker")
    {'PROGRAM': '/opt/vispark/bin/gpu-worker', 'IMAGE': 'vispark:latest'}
    """
    program = program or _own_program()
    if not re.fullmatch(r"/[^\s%\"'\\]+", program):
        raise OptionError(f"the path of gpu-worker is {program!r}; units take an absolute path without blanks, "
                          "quotation marks and per cent signs, as /opt/vispark/bin/gpu-worker")
    if not re.fullmatch(r"[\w.:/@-]*", image):
        raise OptionError(f"{image!r} is no name of an image; one is registry.example.com/vispark:0.13")
    return {"PROGRAM": program, "IMAGE": image or "vispark:latest"}


def write(platform: str, out: Path, names: Mapping[str, str], *, replace: bool = False) -> list[Path]:
    """Write a platform's files below a directory, or those of all platforms, each in a folder of its own.

    Parameters
    ----------
    platform : str
        One of :func:`platforms`; all where it is empty.
    out : Path
        Made where it is missing.
    names : mapping of str to str
        As :func:`values` gives it.
    replace : bool
        Whether files that are there already, and differ, are written over.

    Returns
    -------
    list of Path
        The files; scripts among them may be executed.

    Raises
    ------
    OptionError
        If there is no such platform, or a file is there already with another content; nothing is written then.
    WorkerUnavailable
        If the directory cannot be written.
    """
    if platform and platform not in platforms():
        raise OptionError(f"there is no platform {platform!r}; there are {', '.join(platforms())}")
    root = _FOLDER / platform
    texts = {out / path.relative_to(root): (_filled(path, names), path.stat().st_mode & 0o111)
             for path in sorted(root.rglob("*")) if path.is_file()}
    try:
        edited = [path for path, (text, _) in texts.items()
                  if path.exists() and path.read_text(encoding="utf-8") != text]
        if edited and not replace:
            raise OptionError(f"{', '.join(map(str, edited))} differ from what would be written; "
                              "--replace writes over them")
        for path, (text, executable) in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if executable or path.suffix == ".sh" else 0o644)
    except (OSError, UnicodeDecodeError) as error:
        raise WorkerUnavailable(f"the files cannot be written below {out}: {error}") from error
    return list(texts)


def _filled(path: Path, names: Mapping[str, str]) -> str:
    """Return a template's text with names in place of ``@NAME@``."""
    return _VALUE.sub(lambda match: names[match[1]], path.read_text(encoding="utf-8"))


def _own_program() -> str:
    beside = Path(sys.executable).with_name("gpu-worker")
    return str(beside) if beside.exists() else shutil.which("gpu-worker") or "/opt/vispark/bin/gpu-worker"
