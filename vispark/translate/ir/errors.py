"""Errors of the translator: what it refuses, at the user's own line."""

from __future__ import annotations

from typing import Any

from gpu_worker.protocol.errors import Place, PlanError


class Refusal(Exception):
    """A reason without a place; whoever knows the place turns it into a :class:`TranslationError`."""


class NotConstant(Refusal):
    """A refusal of what the variable of a loop decides: where the loop is short, it is written out instead."""


def is_of_a_turn(error: BaseException) -> bool:
    """Return whether an error may vanish if the turns of a loop are written out, as more numbers are constants then."""
    one: BaseException | None = error
    while one is not None and not isinstance(one, NotConstant):
        one = one.__cause__
    return one is not None


class TranslationError(PlanError):
    """A function that cannot become a kernel.

    Parameters
    ----------
    message : str
        What is not supported and what would be, with the user's line reprinted.
    file : str
        Where the function was written.
    line, column : int
        The place in the file, both counted from 1; 0 where it is not known.
    """

    def __init__(self, message: str, place: Place | None = None, detail: str = "", *, file: str = "", line: int = 0,
                 column: int = 0):
        super().__init__(message, place, detail)
        self.file, self.line, self.column = file, line, column

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.args, self.file, self.line, self.column)

    def at(self, **known: Any) -> TranslationError:
        """Return a copy of the error with those parts of its place filled in that were unknown."""
        place = super().at(**known).place
        error = TranslationError(self.message, place, self.detail, file=self.file, line=self.line, column=self.column)
        error.__cause__ = self.__cause__
        return error.with_traceback(self.__traceback__)

    def nowhere(self) -> TranslationError:
        """Return a copy of the error without a place in the data."""
        return TranslationError(self.message, None, self.detail, file=self.file, line=self.line, column=self.column)


def _rebuild(args: tuple[Any, ...], file: str, line: int, column: int) -> TranslationError:
    return TranslationError(*args, file=file, line=line, column=column)
