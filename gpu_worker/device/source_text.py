"""Names and errors read off the text of CUDA C++ sources and of compilers, for every device that compiles."""

from __future__ import annotations

import re

from gpu_worker.protocol.plans import CHECKS_FILE

_ASSERTION = re.compile(r'static[_ ]assert(?:ion)? failed[^A-Za-z]*(?:with ")?(.*)')
_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.S)
_SPECIFIER = re.compile(r"\b(?:__launch_bounds__|__cluster_dims__|__attribute__|__block_size__)\s*\(")
_GLOBAL = re.compile(r"\b__global__\b[^;{}()]*?\b([A-Za-z_]\w*)\s*\(")


def kernel_names(text: str) -> tuple[str, ...]:
    """Return the names of the ``__global__`` functions written in a source, each once, in order.

    Names that macros put together are not seen.

    >>> kernel_names('extern "C" __global__ void add(int* x) {} // __global__ void no()')
    ('add',)
    """
    plain = _without_specifiers(_NOISE.sub(" ", text))
    return tuple(dict.fromkeys(_GLOBAL.findall(plain)))


def refused_argument(file: str, words: str) -> str:
    """Return the message of a client's assertion about a kernel's arguments, if a compiler's error is one; else ""."""
    match = _ASSERTION.search(words) if file == CHECKS_FILE else None
    return match[1].rstrip('"') if match else ""


def _without_specifiers(text: str) -> str:
    """Return the text without ``__launch_bounds__(...)`` and its like, whose parentheses are not a function's."""
    while match := _SPECIFIER.search(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[:match.start()] + text[end:]
    return text
