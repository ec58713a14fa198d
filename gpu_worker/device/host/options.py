"""Translation of NVRTC's options to those of a host compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpu_worker.device.base import Source
from gpu_worker.protocol.errors import CompileError

#: Options about GPUs, debugging or warnings, which change nothing here; with their value, after "=" or a blank.
_IGNORED_VALUE = ("-arch", "--gpu-architecture", "-maxrregcount", "--maxrregcount", "-Xptxas", "--ptxas-options",
                  "-diag-suppress", "--diag-suppress", "-ftz", "--ftz", "-prec-sqrt", "--prec-sqrt", "-prec-div",
                  "--prec-div", "-ewp", "-opt-info", "--optimization-info", "--split-compile", "-jump-table-density")
_IGNORED = ("-lineinfo", "--generate-line-info", "-G", "--device-debug", "-w", "--disable-warnings", "-restrict",
            "--restrict", "-default-device", "--device-as-default-execution-space", "-rdc=true", "-rdc=false",
            "--extra-device-vectorization", "-extra-device-vectorization", "--no-source-include",
            "--display-error-number", "--no-display-error-number", "-dopt=on", "-dopt=off", "-O0", "-O1", "-O2", "-O3")
_LONG = {"--define-macro": "-D", "--undefine-macro": "-U", "--include-path": "-I"}
_STANDARDS = {"c++11": "-std=gnu++14", "c++14": "-std=gnu++14", "c++17": "-std=gnu++17", "c++20": "-std=gnu++20"}


def compiler_options(source: Source) -> tuple[list[str], list[str]]:
    """Return the host compiler's options for those of a source, and its macros as lines of text.

    The macros stand after our own headers, which they must not touch.

    Raises
    ------
    CompileError
        If an option is not known.

    Examples
    --------
    >>> compiler_options(Source("", options=("-DN=4", "-UM", "--use_fast_math", "-arch=sm_90")))
    (['-std=gnu++17', '-ffast-math', '-fno-finite-math-only'], ['#define N 4', '#undef M'])
    """
    options, macros, words = ["-std=gnu++17"], [], iter(source.options)
    for option in words:
        name, equals, value = option.partition("=")
        if option in ("-use_fast_math", "--use_fast_math"):
            # What a GPU's fast mathematics does with infinities and NaNs is still defined.
            options += ["-ffast-math", "-fno-finite-math-only"]
        elif name in ("-std", "--std"):
            options[0] = _standard(source, value or _value(source, option, words))
        elif name in ("-fmad", "--fmad"):
            options += ["-ffp-contract=off"] if value == "false" else []
        elif match := re.match(r"(-[DUI]|--define-macro|--undefine-macro|--include-path)(=?)(.*)", option, re.S):
            letter = _LONG.get(match[1], match[1])
            text = match[3] or _value(source, option, words)
            if letter == "-I":
                options.append(f"-I{text}")
            else:
                macros.append(_macro(letter, text))
        elif name in _IGNORED_VALUE:
            if not equals:
                _value(source, option, words)
        elif option not in _IGNORED:
            raise CompileError(f"{source.file} asks for the option {option!r}, which the host device does not know; it "
                               "takes -D, -U, -I, -std, --use_fast_math, --fmad and passes over those about GPUs")
    return options, macros


def _macro(letter: str, text: str) -> str:
    name, equals, value = text.replace("\n", " ").partition("=")
    return f"#define {name} {value if equals else 1}" if letter == "-D" else f"#undef {text}"


def _value(source: Source, option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise CompileError(f"the option {option!r} of {source.file} has no value")
    return value


def _standard(source: Source, value: str) -> str:
    if value not in _STANDARDS:
        raise CompileError(f"{source.file} asks for the C++ standard {value!r}; it may be {', '.join(_STANDARDS)}")
    return _STANDARDS[value]
