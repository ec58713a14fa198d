"""Every operator and library function of the language, as a piece of a function, and what "equal" means for it.

In a template ``{a}`` and ``{b}`` are expressions of the element's numbers, wild ones; ``{x}`` and ``{y}`` the
numbers themselves; ``{m}`` and ``{n}`` moderate numbers, ``{c}`` a condition; ``{p}`` and ``{q}`` wild rows, ``{r}``
and ``{s}`` moderate ones, ``{B}`` a moderate record of two axes, ``{E}`` a row at the ends of the type whose sum is the
same in every order; ``{U}`` a wild row whose length only the data say, ``{V}`` and ``{T}`` moderate ones of its length;
``{k}`` the key of a pair, a Python int, and ``{j}`` a Python float of its value.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.property.differential.library_probes import library_probes
from tests.property.differential.probe import EXACT, Equal, Probe
from vispark.translate.language import library

_LOOSE, _NEAR, _ZERO, _PARTS = Equal(units=8), Equal(units=2), Equal(zero=True), Equal(parts=4)
_PROMOTED = Equal(promoted=True)
#: A complex power is exp(b log(a)), by NumPy in single precision where its operands are, and loses by the size of the
#: exponent: the logarithm can be 708, b 2.5, and both sides round it.
_POWER = Equal(units=8, parts=4096)
#: Half precision is rounded from what single precision gives; NumPy's powers and remainders go the same way.
_EXACT_C = ("sqrt", "fabs", "copysign", "fmod")


def _operators() -> list[Probe]:
    probes = [Probe(f"({{a}} {symbol} {{b}})") for symbol in (*"+-*%&|^<>", "//", "<<", ">>", "<=", ">=", "==", "!=")]
    probes += [Probe("({a} / {b})", _PARTS), Probe("({m} / {n})", _PARTS)]
    probes += [Probe(text) for text in (
        "(-{a})", "(+{a})", "(~{a})", "(not {a})", "({a} + 3)", "(2 - {a})", "({a} * 3)", "({a} * 0.5)",
        "({a} - 1.5)", "({a} // 3)", "({a} % 5)", "(7 // {a})", "(100 % {a})", "({a} // 2.5)", "({a} % 0.75)",
        "({a} << 2)", "({a} >> 1)", "(1 << {m})", "({a} & 3)", "({a} | 1)", "({a} ^ 5)", "({a} == 3)", "(2 <= {a})",
        "({a} < 2.5)", "({a} != 0.1)", "(0 < {a} <= 3)", "({a} < {b} <= {m})", "({a} == {b} == {m})", "({a} + True)",
        "({a} > True)", "({a} == 300)", "({a} >= -1)", "({a} + 1j)", "({a} == 2j)", "(not ({a} or {c}))",
        "bool({a})", "float({a})", "complex({a})", "complex({m}, {n})",
        "({a}, {b})[1]", "({a}, ({b}, {m}))", "(({a}, {b}) == ({m}, {n}))", "(({a}, 1) != ({m}, 1))",
        "({m} * {n} - {m})", "(1 if {a} else 2)", "({a} is None)", "-(-{a})")]
    probes += [Probe("(7.25 / {a})", _PARTS), Probe("({a} / 3)", _PARTS)]
    probes += [Probe(f"({{a}} {text})", Equal(units=4, parts=16)) for text in ("** 2", "** 3", "** 4", "** 0", "** 5")]
    probes += [Probe(f"({{m}} {text})", _POWER) for text in ("** 0.5", "** -1", "** 2.0", "** -2", "** {n}",
                                                                    "** abs({n})")]
    probes += [Probe("(2 ** {m})", _POWER), Probe("(2.5 ** {m})", _POWER)]
    probes += [Probe(text, _PROMOTED) for text in (
        "({a} and {b})", "({a} or {b})", "({a} if {c} else {b})", "min({a}, {b})", "max({a}, {b}, {m})",
        "min(({a}, {b}))", "({a} if {a} else 0)", "({c} and {a})", "({a} and {c})",
        "({c} and not {a})", "min({a}, 3)", "max({a}, {m})")]
    probes += [Probe(text) for text in (
        "sum(({a}, {m}, {b}))", "sum(({a}, {m}), {n})", "divmod({a}, {b})",
        "int({m})", "round({m})", "({m}).item()", "({x}).real", "({x}).imag", "({x}).conj()",
        "({x}).conjugate()", "({x}).ndim", "({x}).size", "np.where({c}, {a}, {b})", "np.where({a}, {m}, 1)",
        "np.real({a})", "np.imag({a})", "np.copy({a})", "np.asarray({a})", "np.ones_like({x})", "np.zeros_like({x})",
        "np.sum({m})", "np.full(3, {a})", "np.array([{a}, {b}])", "np.array([{a}, 2])[0]", "np.array([[{a}], [{m}]])",
        "np.ones(2) * {m}", "len(({a}, {b}))", "np.arange(3) * {m}",
        "K * {m}", "({a} + K)", "W[1] + {m}", "(W * {m})", "len(W)", "W[:2]", "np.dot(W, W)", "np.max(W)",
        "twice({m})", "chosen({a}, {m})", "chosen({a}, low={m})", "pair({a}, {b})", "(lambda z: z * 2)({m})")]
    probes += [Probe(text) for text in (
        "({m} in ({n}, 2, {b}))", "({a} not in (1, 2))", "({m} in range(3))", "pair(*({a}, {b}))", "sum([{a}, {m}])",
        "[v for v in ({a}, {m})][1]", "np.array([v for v in ({a}, {m})])", "sum(v for v in ({m}, {n}))",
        "any(v for v in ({a}, {m}))", "({a},) * 2", "np.isclose({a}, {m})", "np.allclose({m}, {n})",
        "np.round({m}, 1)", "round({m}, 1)", "np.hstack(({a}, {m}))", "chosen(*({a}, {m}))")]
    probes += [Probe("np.angle({m})", _LOOSE), Probe("max(*({a}, {m}))", _PROMOTED),
               Probe("math.isclose({m}, {n})"), Probe("math.hypot({m}, {n}, 1)", _LOOSE)]
    probes += [Probe("pow({m}, 2)", Equal(units=2)), Probe("abs({a})", _PARTS), Probe("np.clip({a}, {m}, {n})", _ZERO),
               Probe("np.clip({a}, 0, 2)", _ZERO)]
    return probes


def _conversions() -> list[Probe]:
    probes = []
    for name in library.TYPES:
        probes += [Probe(f"np.{name}({{m}})" if "uint" not in name else f"np.{name}(abs({{m}}))")]
        probes += [Probe(f"({{m}}).astype(np.{name})" if "uint" not in name else f"abs({{m}}).astype(np.{name})")]
    return probes


def _ufuncs() -> list[Probe]:
    probes = []
    free = {"maximum", "minimum", "fmax", "fmin"}
    for name in (*library.UFUNC_C, *library.UFUNC_OTHER):
        ufunc = getattr(np, name)
        first, second = ("{x}", "{y}") if name in ("copysign", "signbit") else ("{a}", "{b}")
        if name == "power":
            first, second = "{m}", "abs({n})"
        if name == "reciprocal":
            # An integer's is undefined at zero.
            first = "np.where({m} == 0, K, {m})"
        # CUDA promises of its hypot no more than two units in the last place, where that of a host is nearly exact.
        loose = (name in library.UFUNC_C and name not in _EXACT_C) or name == "hypot"
        near = name in ("deg2rad", "rad2deg", "radians", "degrees", "reciprocal", "square")
        equal = _LOOSE if loose else _NEAR if near else _ZERO if name in free else _PARTS
        equal = _POWER if name in ("power", "float_power") else equal
        # Of complex numbers near zero NumPy's is what 1 + z has kept of them.
        equal = replace(equal, absolute=2) if name == "log1p" else equal
        equal = Equal(units=4, absolute=2) if name in ("logaddexp", "logaddexp2") else equal
        probes.append(Probe(f"np.{name}({', '.join((first, second)[:ufunc.nin])})", equal))
    return probes


def _math() -> list[Probe]:
    exact = {"floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "fabs", "sqrt", "copysign", "fmod", "remainder"}
    pairs = {"atan2", "hypot", "pow", "fmod", "copysign", "remainder"}
    probes = []
    others = ("prod", "dist", "isclose", "frexp", "modf", "ldexp")
    for name in (*library.MATH, "hypot", *library.MATH_OTHER, *others):
        operands = "{x}, {y}" if name == "copysign" else "{m}, {n}" if name in pairs else \
            "{m}" if name in ("gamma", "lgamma") else "{a}"
        equal = EXACT if name in exact else Equal(units=64, absolute=64) if name in ("gamma", "lgamma") else _LOOSE
        probes.append(Probe(f"math.{name}({operands})", equal))
    probes += [Probe("math.floor({m})"), Probe("math.ceil({m})"), Probe("math.trunc({m})"),
               Probe("math.log(abs({m}), 3)", _LOOSE), Probe("({m} * math.pi)"), Probe("({m} + math.inf)")]
    return probes


def _operator_module() -> list[Probe]:
    probes = []
    for name, symbol in library.OPERATORS.items():
        if name in ("abs", "matmul"):
            continue
        is_unary = symbol in ("not", "~") or name in ("neg", "pos")
        operands = "{m}, abs({n})" if symbol == "**" else "{a}" if is_unary else "{a}, {b}"
        probes.append(Probe(f"operator.{name}({operands})", _POWER if symbol == "**" else
                            _PARTS if symbol == "/" else EXACT))
    return probes


#: Sums that no order of adding changes, for the numbers are moderate.
_ORDER = Equal(zero=True, units=1)
_CANCELS = Equal(zero=True, units=64, absolute=64 * 32)


def _rows() -> list[Probe]:
    exact = ["{p}", "{p}[0]", "{p}[-1]", "{p}[1:]", "{p}[::-1]", "{p}[::2]", "{p}[:-1]", "{p}[1:3]", "{p}[None]",
             "{p}[..., 0]", "({p} + {q})", "({p} - {r})", "({p} * 2)", "({p} * {q}[0])", "(1 - {p})", "({p} // {q})",
             "({p} % 3)", "({p} & {q})", "({p} > {q})", "({p} == {q}[::-1])", "(-{p})", "(~{p})",
             "({p} << 1)", "np.where({p} > {q}, {p}, {q})", "np.where({p}, {q}, 0)", "len({p})", "{p}.shape",
             "{p}.size", "{p}.ndim", "{p}.T", "{p}.real", "{p}.imag", "{p}.conj()", "{p}.copy()", "np.copy({p})",
             "np.asarray({p})", "np.array({p})", "np.array([{p}, {q}])", "np.array([{p}[0], {x}])",
             "np.zeros_like({p})", "np.ones_like({p})", "np.zeros(3)", "np.ones((2, 2))", "np.full(2, {p}[0])",
             "np.arange(4)", "np.arange(1, 7, 2)", "np.transpose({p})", "np.any({p})", "np.all({p})", "{p}.any()",
             "{p}.all()", "np.argmin({p})", "np.argmax({p})", "{p}.argmin()", "{p}.argmax()", "min({p})", "max({p})",
             "any({p})", "all({p})", "any(v > {x} for v in {p})", "all(v == v for v in {p})",
             "sum(1 for v in {p} if v > {x})", "max(abs(v) for v in {r})", "min(v for v in {p})",
             "np.outer({r}, {s})", "({p}[:, None] == {q})", "np.square({p})", "np.floor({p})", "np.isnan({p})",
             "np.sign({p})", "np.add({p}, {q})", "np.invert({p})", "({r}).astype(np.float64)", "({r}).astype(int)",
             "({p} < W[0])", "np.sum({p} > {q})", "pair({p}, {q})", "({p} if {c} else {q})", "{p}[len({p}) // 2]",
             "np.array([v for v in {p}])", "np.array([v + w for v, w in zip({p}, {q})])", "[v for v in {p}][0]",
             "np.array([[v, {x}] for v in {p}])", "({x} in {p})", "(3 not in {p})", "max(*{r}[:2], {m})",
             "np.diff({p})", "np.flip({p})", "np.roll({p}, 1)", "np.concatenate(({p}, {q}))", "np.stack(({p}, {q}))",
             "np.append({p}, {x})", "{p}.reshape(-1, 1)", "np.reshape({B}, (-1, 2))", "{B}.ravel()", "{B}.flatten()",
             "np.vstack(({p}, {q}))", "np.count_nonzero({p})", "np.isclose({p}, {q})", "np.flip({B}, 0)",
             "np.round({r}, 1)", "np.full_like({p}, 1)", "np.cumsum({r})", "{r}.cumsum()",
             "any(v == w for v in {p} for w in {q})", "max(v for v in reversed({r}))",
             "{p}[-1 if {c} else 0]", "{p}[abs(int({m})) % len({p})]", "operator.add({p}, {q})"]
    probes = [Probe(text, rows=True) for text in exact] + [Probe("abs({p})", _PARTS, rows=True)]
    probes += [Probe(text, _ORDER, rows=True) for text in (
        "np.sum({r})", "{r}.sum()", "sum({r})", "sum({r}, {m})", "np.dot({r}, {s})", "({r} @ {s})", "{r}.dot({s})",
        "np.inner({r}, {s})", "np.vdot({r}, {s})", "np.matmul({r}, {s})", "operator.matmul({r}, {s})",
        "sum(v * v for v in {r})", "sum(v * w for v, w in zip({r}, {s}))", "sum(i * v for i, v in enumerate({r}))",
        "sum({r}[i] for i in range(len({r})))", "np.cumprod({r})", "np.ptp({r})", "np.polyval({r}, {m})",
        "np.trace({B})", "sum(v * w for v in {r} for w in {s})", "sum([v * v for v in {r}])",
        "sum(w * row for w, row in ((2, {r}), ({m}, {s})))", "np.mean({r})", "{r}.mean()",
        "np.sum({r}, dtype=np.float64)",
        "np.sum({r} * {s})", "np.sum({r}, axis=0)", "np.sum({r}, axis=-1)", "{r}.dot(2)")]
    probes += [Probe(text, Equal(units=16), rows=True) for text in (
        "np.prod({r})", "{r}.prod()", "np.linalg.norm({r})", "np.exp({r})", "np.sin({r})", "({r} / {s})",
        "({r} ** 2)", "np.sqrt({r})", "np.log(abs({r}))", "np.hypot({r}, {s})")]
    probes += [Probe(text, _CANCELS, rows=True) for text in ("np.var({r})", "np.std({r})", "{r}.var()", "{r}.std()")]
    probes += [Probe(text, _ZERO, rows=True) for text in (
        "np.min({p})", "np.max({p})", "{p}.min()", "{p}.max()", "np.clip({p}, {m}, {n})", "{p}.clip(0, 2)",
        "np.maximum({p}, {q})", "np.minimum({p}, {x})", "np.fmax({p}, {q})")]
    probes += [Probe(text, rows=True) for text in (
        "{B}", "{B}[0]", "{B}[:, 0]", "{B}[-1, ::-1]", "{B}.T", "np.transpose({B})", "({B} + {B}[0])", "{B}.shape",
        "np.any({B}, axis=0)", "np.all({B}, axis=1)", "np.argmin({B}, axis=-1)", "np.argmax({B})",
        "np.argmax({B}, axis=0)", "({B} > {m})", "len({B})")]
    probes += [Probe(text, _ORDER, rows=True) for text in (
        "np.sum({B})", "np.sum({B}, axis=0)", "{B}.sum(axis=1)", "np.mean({B}, axis=0)", "({B} @ {r})", "({r} @ {B}.T)",
        "np.dot({B}, {r})", "({B} @ {B}.T)", "np.min({B}, axis=1)", "{B}.max(axis=0)", "np.max({B})",
        "np.matmul({B}, {r})", "np.einsum('i,i', {r}, {s})", "np.einsum('ij,j->i', {B}, {r})", "np.nansum({r})",
        "np.nanmean({r})", "np.median({r})", "np.median({B}, axis=1)")]
    probes += [Probe(text, _ZERO, rows=True) for text in (
        "np.sort({p})", "np.sort({B}, axis=0)", "sorted({r})[0]", "{r}[np.argsort({r})[0]]", "np.nanmin({p})",
        "np.nanmax({p})", "np.einsum('i,j->ij', {r}, {s})")]
    # Calls whose arguments are given by place and by name.
    probes += [Probe(text, rows=True) for text in (
        "min(range(len({r})), key=lambda i: {r}[i])", "max({r}, key=abs)", "min({p}, key=lambda v: v == {x})",
        "max((v for v in {p}), key=lambda v: v > {x})", "min([v for v in {p}], default=0)", "max({p}[:0], default=3)",
        "max(range(1, 3), key=lambda i: {p}[i])", "np.argmin({B}, 1)", "np.any({B}, 0)", "np.argmax([{x}, {m}])",
        "np.count_nonzero({B}, 1)", "np.eye(2, 3, 1)", "np.append({B}, {x})")]
    probes += [Probe(text, _ORDER, rows=True) for text in (
        "sum((v for v in {r}), start={m})", "sum([v for v in {r}], 2)", "sum(range(3), start={m})",
        "sum((w * {r} for w in (1, 2)), start={s})", "np.sum({B}, 1)", "np.mean({B}, 1, np.float64)",
        "np.linalg.norm({r}, np.inf)", "np.linalg.norm({r}, ord=-np.inf)", "np.linalg.norm({B}, np.inf, axis=1)",
        "np.cumsum({r}, 0)", "np.ptp({B}, 1)")]
    probes += [Probe(text, Equal(units=16), rows=True) for text in (
        "np.linalg.norm({r}, 1)", "np.linalg.norm({r}, 2, 0)", "np.linalg.norm({r}, 0)", "np.linalg.norm({B}, 'fro')",
        "np.linalg.norm({B}, 1)", "np.linalg.norm({B}, 1, 0)", "np.linalg.norm({B}, ord=-np.inf)")]
    probes += [Probe(text, rows=True) for text in (
        "np.searchsorted(np.sort({r}), {m})", "np.digitize({m}, np.sort({r}))",
        "np.squeeze({p}[None])", "np.expand_dims({p}, -1)")]
    probes += [Probe("np.interp({m}, (0, 1, 2), W)", Equal(units=2)), Probe("np.interp({r}, (-1, 0, 2), W)",
                                                                            Equal(units=2), rows=True)]
    # Loops over arrays may fuse a product and a sum of complex parts.
    return [replace(probe, equal=replace(probe.equal, parts=max(4, probe.equal.parts))) for probe in probes]


def _parameters() -> list[Probe]:
    """Return probes of parameters of library functions: each type that is asked for, of every dtype."""
    probes = [Probe("np.full(3, {a})[1] + 0")]
    for name in library.TYPES:
        row = "abs({r})" if "uint" in name else "{r}"
        for function in ("sum", "prod", "cumsum", "cumprod"):
            equal = Equal(units=64, absolute=64) if name in ("float16", "float32", "complex64") else Equal(units=16)
            probes.append(Probe(f"np.{function}({row}, dtype=np.{name})", equal, rows=True))
        if np.dtype(getattr(np, name)).kind in "fc":
            probes += [Probe(f"np.{function}({row}, dtype=np.{name})", _CANCELS, rows=True)
                       for function in ("mean", "var", "std")]
        blocks = "abs({B})" if "uint" in name else "{B}"
        probes += [Probe(f"np.sum({blocks}, axis=1, dtype=np.{name})", Equal(units=64, absolute=64), rows=True),
                   Probe(f"({row}).sum(dtype=np.{name})", Equal(units=64, absolute=64), rows=True),
                   Probe(f"({row}).astype(np.{name})", rows=True), Probe(f"np.array({row}, np.{name})", rows=True),
                   Probe(f"np.asarray({row}, dtype=np.{name})", rows=True),
                   Probe(f"np.zeros_like({{p}}, dtype=np.{name})", rows=True),
                   Probe(f"np.full_like({{p}}, 1, dtype=np.{name})", rows=True)]
        probes += [Probe(f"np.{text}, dtype=np.{name})") for text in (
            "zeros(2", "ones((2, 1)", "full(2, 1", "arange(3", "eye(2", "array([0, 1]", "zeros_like({a}",
            "ones_like({a}")]
        filled = "abs({m})" if "uint" in name else "{m}"
        probes.append(Probe(f"np.full(2, {filled}, np.{name})"))
    probes += [Probe(text, _CANCELS, rows=True) for text in (
        "np.var({r}, ddof=1)", "np.std({r}, ddof=1)", "{r}.var(ddof=1)", "{r}.std(ddof=1)", "np.var({B}, axis=1)",
        "np.std({B}, axis=0)", "np.var({B}, axis=0, ddof=1)", "np.std({B}, 1, ddof=1)", "np.var({B}, axis=-1)")]
    probes += [Probe(text, Equal(units=64, absolute=64), rows=True) for text in (
        "np.prod({B}, axis=1)", "np.prod({B})")]
    probes += [Probe(text, _ZERO, rows=True) for text in ("np.sort({B}, axis=1)", "np.sort({B})")]
    probes += [Probe(text, rows=True) for text in (
        "np.all({B}, axis=0)", "np.argmin({B}, axis=0)", "np.argmax({B}, axis=1)", "np.count_nonzero({B}, axis=0)",
        "np.flip({B}, axis=1)", "np.round({r}, decimals=2)", "np.round({r}, -1)", "{r}.round(1)",
        "np.expand_dims({p}, axis=0)")]
    return probes + [Probe(text) for text in ("np.round({m}, 2)", "np.round({m}, -1)", "round({m}, -1)",
                                              "np.round({m}, decimals=3)", "np.around({m}, 1)", "({m}).round(1)")]


def _ends() -> list[Probe]:
    """Return probes of what was wrong at the ends of types once, and its like."""
    probes = [Probe(text) for text in (
        "(({x} // 7), (-{x} // 7))", "(({x} // 2), (-{x} // 2), ({x} % 2))", "(({x} % 7), (-{x} % 7), (-({x} % 7)))",
        "(({x} // {y}), (-{x} // {y}))", "(({x} // -3), (-{x} // -3))", "(abs({x}) // 7)", "(abs({x}) < 0)",
        "(-{x} > 0)", "((0 - {x}) // 3)", "({x} * -1 // 3)", "divmod({x}, 7)",
        "divmod(-{x}, 7)", "(np.fmod({x}, 7), np.fmod(-{x}, 7))", "max(-{x}, {x})", "(np.sign({x}) * {x} // 3)",
        "({x} - {y} - 1)", "({x} // 3 * 3 + {x} % 3)", "(-{x} >> 1, {x} >> 1)")]
    probes += [Probe(text, _PARTS) for text in ("np.abs({x} - {m})", "(-abs({x}))", "(abs(-{x}) % 5)")]
    probes += [Probe(f"np.{name}({{a}})") for name in ("float32", "float64", "complex64", "complex128", "bool_")]
    # Of integers alone, as of floats what is beyond an integer is not defined.
    probes += [Probe(f"(~{{a}}).astype(np.{name})") for name in library.TYPES]
    probes += [Probe(f"np.{name}(~{{a}})", _LOOSE) for name in ("sqrt", "cbrt", "exp2", "log2")]
    probes += [Probe(text, _ORDER, rows=True) for text in (
        "np.sum({E})", "{E}.sum()", "np.mean({E})", "np.nanmean({E})", "np.nansum({E})", "np.median({E})",
        "np.trapezoid({E})", "np.trapezoid({E}, dx=2)", "np.dot({E}, {E})", "np.sum({E}, dtype=np.float64)",
        "np.mean({E}, dtype=np.float64)", "sum({E})", "np.prod({E}[:2])",
        "np.linalg.norm({E}, 0)")]
    probes.append(Probe("np.linalg.norm({E}, np.inf)", replace(_ORDER, parts=4), rows=True))
    # Of the greatest number half the difference of two is it or is infinite, as the difference is rounded.
    probes += [Probe(text, Equal(zero=True, units=4), rows=True) for text in (
        "np.quantile({E}, 0)", "np.quantile({E}, 1)", "np.quantile({E}, 0.0)", "np.quantile({E}, 0.5)",
        "np.quantile({E}, 1.0)", "np.percentile({E}, 30)", "np.percentile({E}, 100)", "np.quantile({E}[:1], 1)",
        "np.gradient({E})", "np.interp({m}, (0, 1, 2), W)")]
    probes += [Probe(text, rows=True) for text in (
        "np.diff({E})", "np.cumsum({E})", "np.argmin({E})", "np.argmax({E})", "min({E})", "max({E})",
        "max({E}, key=abs)", "any({E})", "np.isclose({E}, {p})", "np.tril({E})", "np.triu({B})", "np.diag({E})",
        "np.searchsorted(np.sort({r}), {E})", "np.outer({E}, {E})", "np.count_nonzero({E})", "{E}[()]",
        "np.select([{E} > 1, {E} > 0], [{E}, {p}], {m})")]
    probes += [Probe(text, _ZERO, rows=True) for text in (
        "np.min({E})", "np.max({E})", "np.nanmin({E})", "np.nanmax({E})", "np.ptp({E})", "np.sort({E})",
        "{E}[np.argsort({E})]",
        "np.clip({E}, {m}, {n})")]
    return probes


def _unique(probes: list[Probe]) -> tuple[Probe, ...]:
    return tuple({probe.text: probe for probe in probes}.values())


PROBES = _unique([*_operators(), *_conversions(), *_ufuncs(), *_math(), *_operator_module(), *_rows(), *_parameters(),
                   *_ends(), *library_probes()])

#: What every function's module has: numbers and arrays to capture, and functions to call.
AROUND = """
def twice(z):
    return z + z


def chosen(z, low=None):
    if low is None:
        return z
    if z == low:
        return low
    return z


def pair(z, other):
    return z, (other, z)
"""


def captured(dtype: str) -> dict[str, object]:
    """Return the module's variables K and W, of a dtype."""
    kind = np.dtype(dtype)
    return {"K": kind.type(1), "W": np.array([1, 0, 1] if kind.kind == "b" else [1, 2, 3], kind)}

