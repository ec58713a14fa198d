"""Templates of SciPy's functions, partitions, matrices, random numbers, rows of several lengths, and pairs with their
keys.
"""

from __future__ import annotations

from tests.property.differential.probe import EXACT, Equal, Probe

_ZERO, _NEAR = Equal(zero=True), Equal(zero=True, units=2)
#: A sum of nothing is the int 0 in Python.
_EMPTY = Equal(zero=True, units=1, promoted=True)
#: Of functions that cancel, or whose terms are many.
_SPECIAL = Equal(units=64, absolute=16)
#: Of matrices whose condition is below a hundred.
_SOLVED = Equal(units=1024, absolute=4096)

_POSITIVE = "({B} @ {B}.T + 3 * np.eye(2))"


def library_probes() -> list[Probe]:
    """Return the probes of all libraries."""
    return [*_special(), *_partitions(), *_matrices(), *_random(), *_ragged(), *_pairs()]


def _special() -> list[Probe]:
    probes = [Probe(f"special.{name}({{a}})", Equal(units=8)) for name in ("erf", "expm1", "cbrt", "exp2")]
    # SciPy's is 0 from 26.55 on, where the function is a subnormal number.
    # Before that it is a hundred times less exact than elsewhere, where the kernel's is not.
    probes.append(Probe("special.erfc({a} % 26)", Equal(units=512)))
    probes += [Probe(f"special.{name}({{a}})", _SPECIAL) for name in (
        "log1p", "expit", "logit", "log_expit", "ndtr", "entr")]
    probes += [Probe(f"special.{name}({{m}})", _SPECIAL) for name in ("gamma", "gammaln")]
    probes += [Probe(f"special.{name}({{m}})", _SPECIAL) for name in ("erfinv", "erfcinv", "ndtri", "exprel")]
    probes.append(Probe("special.psi(abs({m}) + 0.25)", _SPECIAL))
    # SciPy's are less exact left of zero, and right of six.
    probes += [Probe(f"special.{name}({{m}})", Equal(units=512, absolute=16)) for name in ("erfcx", "log_ndtr")]
    probes += [Probe(f"special.{name}({{a}}, {{m}})", _SPECIAL) for name in (
        "xlogy", "xlog1py", "huber", "pseudo_huber", "rel_entr", "kl_div")]
    probes += [Probe(f"special.{name}({{m}}, {{a}})", _SPECIAL) for name in ("xlogy", "xlog1py", "rel_entr", "kl_div")]
    probes += [Probe(text, _SPECIAL, rows=True) for text in (
        "special.expit({r})", "special.erf({p})", "special.xlogy({r}, {s})", "special.gammaln({r})",
        "special.logsumexp({r})", "special.softmax({r})", "special.log_softmax({r})",
        "special.logsumexp({B}, axis=1)",
        "special.softmax({B}, axis=1)", "special.softmax({B}, axis=0)",
        "special.logsumexp({B}, axis=0, keepdims=True)",
        "special.log_softmax({B}, axis=-1)", "special.logsumexp({E})", "special.softmax({E})")]
    return probes


def _partitions() -> list[Probe]:
    return [Probe(text, _ZERO, rows=True) for text in (
        "np.partition({p}, 0)[0]", "np.partition({p}, 1)[1]", "np.partition({r}, -1)[-1]",
        "np.sort(np.partition({p}, 1)[:1])", "np.sort(np.partition({r}, 2)[2:])", "np.max(np.partition({r}, 1)[:2])",
        "np.partition({p}, len({p}) // 2)[len({p}) // 2]", "np.partition({E}, 0)[0]",
        "{p}[np.argpartition({p}, 1)[1]]", "{r}[{r}.argpartition(0)[0]]", "np.sum({r}[np.argpartition({r}, 1)[:2]])",
        "np.sort(np.argpartition({p}, 0))")]


def _matrices() -> list[Probe]:
    probes = [Probe(text.replace("POSITIVE", _POSITIVE), _SOLVED, rows=True) for text in (
        "np.linalg.inv(POSITIVE)", "np.linalg.det(POSITIVE)", "np.linalg.solve(POSITIVE, {B} @ {r})",
        "np.linalg.solve(POSITIVE, {B})", "np.linalg.cholesky(POSITIVE)", "np.linalg.slogdet(POSITIVE)[1]",
        "np.linalg.slogdet(POSITIVE)[0]", "np.linalg.eigvalsh(POSITIVE)", "np.linalg.eigh(POSITIVE)[0]",
        "np.trace(np.linalg.inv(POSITIVE))", "np.linalg.inv(POSITIVE) @ {B}",
        "(np.outer({r}, {r}) + 5 * np.eye(len({r})))", "np.linalg.inv(np.outer({r}, {r}) + 5 * np.eye(len({r})))",
        "np.linalg.solve(np.outer({r}, {r}) + 5 * np.eye(len({r})), {s})",
        "np.linalg.det(np.outer({r}, {r}) + 5 * np.eye(len({r})))", "np.linalg.norm(POSITIVE)",
        "np.linalg.cholesky({B} @ {B}.T.conj() + 3 * np.eye(2))",
        "np.linalg.inv({B} @ {B}.T.conj() + 3 * np.eye(2))")]
    # Of the function's own types, which a matrix of float64 beside it would hide.
    probes += [Probe(text, Equal(units=64, absolute=1 << 14), rows=True) for text in (
        "np.linalg.det({B} @ {B}.T)", "np.linalg.det({B}[:, :2])", "np.linalg.eigvalsh({B} @ {B}.T)",
        "np.linalg.slogdet({B} @ {B}.T + np.eye(2))[0] ** 2")]
    return probes


def _random() -> list[Probe]:
    whole = "abs(int({m}))"
    return [Probe(text.replace("WHOLE", whole)) for text in (
        "random.uniform(1, WHOLE)", "random.uniform(WHOLE, 2, 3)", "random.integers(6, 1, WHOLE)",
        "random.integers(2 ** 32, WHOLE, 2)", "random.philox(3, WHOLE)[2]", "random.philox(WHOLE, 2 ** 40)[0]",
        "(random.uniform(1, WHOLE) < 0.5)", "random.uniform(2 ** 63, WHOLE)")] + [
        Probe(f"random.normal(1, {whole})", Equal(units=16, absolute=4))]


def _ragged() -> list[Probe]:
    exact = ("len({U})", "{V}.size", "({U}[0] if len({U}) else {x})", "({U}[-1] if len({U}) > 0 else {x})",
             "({U}[len({U}) // 2] if len({U}) else {x})", "np.any({U})", "np.all({U})", "any({U})", "all({U})",
             "np.sum({V} > {m})", "np.sum({U} == {T})", "sum(1 for v in {U} if v > {x})", "any(v > {x} for v in {U})",
             "np.all(np.isfinite({U}))")
    sums = ("np.sum({V})", "{V}.sum()", "sum({V}, {m})", "np.dot({V}, {T})", "({V} @ {T})", "{V}.dot({T})",
            "np.sum({V} * {T})", "np.sum({V} * {m})",
            "np.sum({V} + 1)", "np.sum(2 * {V} - {T})",
            "np.sum(np.maximum({V}, {T}))", "np.sum(np.where({V} > {T}, {V}, {T}))",
            "({V}.mean() if len({V}) else np.mean({m}))", "np.sum({V} // 2)")
    ends = ("(np.max({U}) if len({U}) else {x})", "({U}.min() if len({U}) else {x})",
            "(max({V}) if len({V}) else {m})", "(min({V}) if len({V}) > 0 else {m})")
    empty = ("sum({V})", "sum(v * v for v in {V})", "sum(v * w for v, w in zip({V}, {T}))",
             "sum(i * v for i, v in enumerate({V}))")
    return [*(Probe(text) for text in exact), *(Probe(text, Equal(zero=True, units=1)) for text in sums),
            *(Probe(text, _ZERO) for text in ends), *(Probe(text, _EMPTY) for text in empty),
            Probe("np.sum(np.sign({V}))", Equal(zero=True, units=4, absolute=8)),
            Probe("np.sum(np.abs({V}))", Equal(zero=True, units=1, parts=8)),
            Probe("np.prod({V})", Equal(units=32))]


def _pairs() -> list[Probe]:
    exact = ("{k}", "({k} + {a})", "({a} - {k})", "({k} * {a})", "({k} == {a})", "({a} < {k})", "({k} + 1)",
             "({k}, {a})", "({k} * {k} - 3)", "(-{k})", "abs({k})", "({k} > 0)", "(2 * {k} + {m})", "({k} // 2)",
             "({k} % 3)", "({k} // {a})", "({a} % {k})", "(1 if {k} else 2)", "(not {k})", "float({k})", "int({k})",
             "bool({k})", "np.int16({k})", "np.where({c}, {k}, {m})", "np.full(2, {k})", "np.array([{k}, 2])",
             "({k} in (1, 2))", "divmod({k}, 3)", "np.asarray({k})", "np.float32({k})", "round({k})",
             "({j} + {a})", "({a} * {j})", "({j} * 2)", "({j} + {k})", "({j}, {k} * {a})", "({a} < {j})",
             "({j} == {k})", "float({j})", "bool({j})", "np.float32({j})", "np.where({c}, {j}, {m})",
             "(-{j})", "abs({j})",
             "({j} // 2)", "({j} % {k})", "np.full(2, {j})", "np.floor({j})", "int({j})",
             "round({j})", "math.floor({j})",
             "({k} & 3)", "({k} << 1)", "(1 << abs({k}))", "(~{k})", "twice({k})",
             "np.square({k})", "math.floor({k})", "({k} + 1j)", "min({k}, 2)", "max({k}, {k} * 2)", "W[{k} % 3]",
             "chosen({k}, 2)")
    # NumPy's loops over complex rows may fuse a product and a sum of parts, which scalars never do: a zero's sign too.
    fused = ("({j} * {p})", "({k} * {p})", "({k} * {B})")
    rows = ("({p} + {j})", "({j} - {B})", "np.where({p} > {j}, {p}, {j})",
            "({p} + {k})", "({p} == {k})", "({p} // {k})", "np.where({p} > {k}, {p}, {k})",
            "np.append({r}, {k})", "np.full_like({p}, {k})", "({k}, {p})",
            "{p}[{k} % len({p})]", "({p} if {k} > 0 else -{p})", "({B} + {k}).sum(axis=0)")
    probes = [Probe(text) for text in exact] + [Probe(text, rows=True) for text in rows]
    probes += [Probe(text, Equal(parts=4), rows=True) for text in fused]
    return [*probes, Probe("({k} / 3)"), Probe("({a} / {k})", Equal(parts=4)), Probe("({k} / {m})", Equal(parts=4)),
                    Probe("({k} ** 2)", Equal(units=2)), Probe("({m} ** {k})", Equal(units=8, parts=512)),
                    Probe("np.exp({k})", Equal(units=8)), Probe("np.sqrt(abs({k}))", EXACT),
                    Probe("math.sqrt(abs({k}))"), Probe("({k} * {V}).sum()", Equal(zero=True, units=1)),
                    Probe("np.sum({V} > {k})"), Probe("min(abs({k}), {a})", Equal(promoted=True)),
                    Probe("({k} or {a})", Equal(promoted=True)), Probe("({k} if {c} else {a})", Equal(promoted=True))]
