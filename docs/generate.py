"""Writer of the parts of the documentation that come from code: ``python -m docs.generate``, in the repository's root.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; tests/policy/test_docs.py compares it.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path

import click

from gpu_worker import cli
from gpu_worker.protocol import codec, errors, grids, messages, payload, publications, stream, tcp_auth, wire
from gpu_worker.system import failpoints, handshake_limiter
from vispark import options
from vispark.migrate import cli as migration_cli
from vispark.plan import slots

DOCS = Path(__file__).resolve().parent

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def message_unions() -> str:
    """Return a list of each union of messages with its members, in the order of their numbers."""
    unions = ("Greeting", "AdmissionMessage", "Request", "Reply", "AdminRequest", "AdminReply", "Step", "Argument")
    rows = []
    for name in unions:
        members = typing.get_args(getattr(messages, name))
        rows.append(f"| `{name}` | " + ", ".join(f"{number} `{member.__name__}`"
                                                 for number, member in enumerate(members)) + " |")
    return _table(("union", "its members, each after its number"), rows)


def message_records() -> str:
    """Return tables of each record with its fields and its meaning, in the order of the files."""
    rows = []
    for name, record in (vars(grids) | vars(publications) | vars(messages)).items():
        if dataclasses.is_dataclass(record) and isinstance(record, type):
            fields = ", ".join(f"`{field.name}` {_type(field.type)}" for field in dataclasses.fields(record))
            rows.append(f"| `{name}` | {fields or 'none'} | {_sentence(record)} |")
    return _table(("record", "fields, in order", "what it is"), rows)


def caps() -> str:
    """Return a table of the limits that hold before anything is allocated."""
    known = [
        ("a frame before the greeting is read", f"{wire.MAX_GREETING} bytes"),
        ("any later frame", f"{wire.MAX_FRAME} bytes"),
        ("descriptors beside a frame", f"{wire.MAX_DESCRIPTORS}"),
        ("items of an array in a message", f"{codec.MAX_ITEMS}"),
        ("maps and extension types in a message", "none"),
        ("array arguments that travel inside the message, together", f"{slots.INLINE_BYTES} bytes"),
        ("alignment within a payload", f"{payload.ALIGNMENT} bytes"),
        ("connections that have not greeted", f"{handshake_limiter.MAX_UNGREETED}"),
        ("time to greet", f"{handshake_limiter.GREETING_SECONDS:g} s"),
        ("over TCP: a line of an unauthenticated peer, in the clear", f"{tcp_auth.MAX_LINE} bytes"),
        ("over TCP: time for line, TLS and challenge, each side", f"{tcp_auth.ADMISSION_SECONDS:g} s"),
        ("over TCP: a payload before the greeting", "0 bytes"),
        ("over TCP: a payload, which comes in chunks", f"half of the memory; {stream.CHUNK_BYTES} bytes a chunk"),
        ("over TCP: time for a message or a chunk that has begun", f"{stream.CHUNK_SECONDS:g} s"),
        ("over TCP: time until a peer takes what is sent", f"{stream.TAKE_SECONDS:g} s"),
    ]
    return _table(("what", "limit"), [f"| {what} | {limit} |" for what, limit in known])


def error_tree() -> str:
    """Return a tree of every error below its base, with its summary."""
    lines: list[str] = []

    def add(kind: type, depth: int) -> None:
        lines.append(f"{'  ' * depth}- `{kind.__name__}`: {_sentence(kind)}")
        for child in kind.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, depth + 1)

    add(errors.VisparkError, 0)
    return "\n".join(lines) + "\n"


def fail_points() -> str:
    """Return a table of every fail-point, in the order in which a plan passes them."""
    rows = [f"| `{name}` | {where} |" for name, where in failpoints.NAMES.items()]
    return _table(("fail-point", "where it is"), rows)


def command_line() -> str:
    """Return the help of each command of ``gpu-worker``, as it prints it."""
    return _help_of(cli.main, "gpu-worker")


def migration_command_line() -> str:
    """Return the help of each command of ``vispark``, as it prints it."""
    return _help_of(migration_cli.main, "vispark")


def _help_of(main: click.Group, program: str) -> str:
    group = click.Context(main, info_name=program, terminal_width=100, max_content_width=100, **main.context_settings)
    texts = _helps(main, group)
    return "\n".join(f"```text\n{text}\n```\n" for text in texts)


def _helps(command: click.Command, context: click.Context) -> list[str]:
    """Return the help of a command, and of those below it."""
    # click keeps the option as it was at its first use, which may have been without the group.
    vars(command)["_help_option"] = None
    texts = [command.get_help(context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            texts += _helps(below, click.Context(below, info_name=name, parent=context, terminal_width=100,
                                                 max_content_width=100))
    return texts


PARTS: dict[str, Callable[[], str]] = {
    "options": options.markdown, "unions": message_unions, "records": message_records, "caps": caps,
    "errors": error_tree, "fail-points": fail_points, "command-line": command_line,
    "migration-command-line": migration_command_line,
}


def generated(text: str) -> str:
    """Return a page with its generated parts as they should be."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]()}\n{match[3]}", text)


def main() -> None:
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = generated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(DOCS.parent)} was brought up to date")


def _table(head: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows]) + "\n"


def _type(annotation: str | type | types.UnionType) -> str:
    """Return an annotation as text; a ``|`` would end the table's cell."""
    return str(annotation).replace("|", "or")


def _sentence(documented: type) -> str:
    """Return the first paragraph of a docstring in one line, without its markup."""
    text = documented.__doc__ or ""
    if text.startswith(f"{documented.__name__}("):      # made by dataclasses
        return ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    paragraph = re.sub(r":\w+:`~?([^`]*)`", lambda match: f"`{match[1]}`", paragraph)
    return re.sub(r"``(.*?)``", r"`\1`", paragraph)


if __name__ == "__main__":
    main()
