"""Errors in the user's words, each made of a host compiler's log, with the user's line."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_worker.device.base import Source
from gpu_worker.device.source_text import kernel_names, refused_argument
from gpu_worker.protocol.errors import CompileError
from gpu_worker.protocol.plans import CHECKS_FILE

#: What the generated end of a unit is called in the compiler's log: line 1 names the kernel, then a line per constant.
ENTRY_FILE = "vispark entry"

#: What the macros that options define are called there.
OPTIONS_FILE = "options"

_ENTRY_LINES = 2
_ERROR = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<words>.*)$", re.M)
_INCLUDED = re.compile(r"(?:from|In file included from) (?P<file>[^\n:]+):(?P<line>\d+)")


def refusal(source: Source, name: str, log: str, headers: Path) -> CompileError:
    """Return the error that a compiler's log amounts to.

    Parameters
    ----------
    source : Source
        What was compiled.
    name : str
        The kernel asked for.
    log : str
        What the compiler wrote.
    headers : Path
        The directory of our own headers, which the user need not hear of.
    """
    errors = list(_ERROR.finditer(log))
    detail = _without_ours(log, headers)
    if errors and (refused := refused_argument(errors[0]["file"], errors[0]["words"])):
        return CompileError(f"{source.file}: {refused}", detail=detail)
    written = [error for error in errors if error["file"] not in (ENTRY_FILE, CHECKS_FILE)]
    if written:
        file, line = written[0]["file"], int(written[0]["line"])
        if file.startswith(str(headers)):
            # The user's line is the one that included our header, or used a macro of it.
            file, line = _user_line(source, log, written[0].start())
        return CompileError(_at_line(source, file, line, written[0]["words"].removeprefix("#error ")), detail=detail)
    errors = [error for error in errors if error["file"] == ENTRY_FILE]
    if errors:
        return CompileError(_no_such_name(source, name, errors), detail=detail)
    first = (log.strip() or "no words").splitlines()[0]
    return CompileError(f"the compiler refused {source.file}: {first}", detail=log)


def _user_line(source: Source, log: str, before: int) -> tuple[str, int]:
    for match in reversed(list(_INCLUDED.finditer(log, 0, before))):
        if match["file"] == source.file:
            return match["file"], int(match["line"])
    after = re.compile(rf"^{re.escape(source.file)}:(\d+):", re.M).search(log)
    return source.file, int(after[1]) if after else 0


def _at_line(source: Source, file: str, line: int, words: str) -> str:
    message = f"{file}, line {line}: {words}"
    lines = source.text.splitlines()
    if file == source.file and 0 < line <= len(lines):
        message += f"\n    {lines[line - 1].strip()}"
    if "<<<" in source.text:
        message += "\n    A source may not launch kernels itself: <<<...>>> is what exec() does."
    if re.search(r"\basm\b", source.text):
        message += "\n    Inline PTX does not run on the host device."
    return message


def _no_such_name(source: Source, name: str, errors: list[re.Match[str]]) -> str:
    line, words = int(errors[0]["line"]), errors[0]["words"]
    if line > _ENTRY_LINES:
        constant = source.constants[line - _ENTRY_LINES - 1][0]
        return f"{source.file} has no __constant__ {constant} that can be set: {words}"
    kernels = kernel_names(source.text)
    has = f"its kernels are {', '.join(kernels)}" if kernels else "it has no __global__ function"
    if re.sub(r"<.*|\s", "", name).rpartition("::")[2] in kernels:
        return f"the kernel {name} of {source.file} cannot be chosen by that name; {has}: {words}"
    return f"{source.file} has no kernel {name}; {has}"


def _without_ours(log: str, headers: Path) -> str:
    """Return the log without the lines about our own headers and the generated end."""
    hidden = (str(headers), ENTRY_FILE, CHECKS_FILE, "unit.cpp")
    return "\n".join(line for line in log.splitlines() if not any(part in line for part in hidden))
