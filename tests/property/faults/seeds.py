"""The faults: a text of the translator that stands there once, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake in a file of ``vispark/translate``."""

    name: str
    file: str
    sound: str
    sown: str


FAULTS = (
    # -- types --------------------------------------------------------------------------------------------------------
    Fault("Python numbers are not weak", "types.py",
          'asked = tuple(_PYTHON[t.dtype] if t.weak and t.dtype != "bool" else t.numpy for t in types)',
          "asked = tuple(t.numpy for t in types)"),
    Fault("ways that meet take the first one's type", "types.py", '    return resolve("add", a, b)[1]\n',
          "    return a\n"),
    Fault("a bool and a number meet", "types.py", 'if (a.dtype == "bool") != (b.dtype == "bool"):', "if False:"),
    Fault("/ of Python ints is an int", "types.py", 'if operator == "/" else wider', 'if operator == "" else wider'),
    Fault("Python numbers meet in the narrower type", "types.py",
          "return max(a, b, key=lambda t: list(_PYTHON).index(t.dtype))\n    if a.dtype",
          "return min(a, b, key=lambda t: list(_PYTHON).index(t.dtype))\n    if a.dtype"),
    # -- scalars ------------------------------------------------------------------------------------------------------
    Fault("// truncates", "prelude.py", "return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));",
          "return quotient;"),
    Fault("% has the dividend's sign", "scalars.py", '"%": "floor_remainder"', '"%": "c_remainder"'),
    Fault("shifts go the other way", "scalars.py", '"<<": "shift_left",\n              ">>": "shift_right"',
          '"<<": "shift_right",\n              ">>": "shift_left"'),
    Fault("ufuncs compute in the operands' own types", "scalars.py", "numbers = tuple(map(_fitting, operands, casts))",
          "numbers = operands"),
    Fault("64-bit integers with and without a sign compare by bits", "scalars.py",
          'if "uint64" in wide and len(wide) > 1:', "if False:"),
    Fault("> of mixed integers is <", "scalars.py", '{">": "mixed_less", "<=": "!mixed_less"}\n',
          '{"<=": "!mixed_less"}\n'),
    Fault("a Python int that does not fit compares as nothing", "scalars.py",
          "((known.value, 0) if known is a else (0, known.value))",
          "((0, known.value) if known is a else (known.value, 0))"),
    Fault("powers by 3 are powers by 2", "scalars.py", "for exponent in (2, 3, 4)}.get(b)",
          "for exponent in (2, 3, 4)}.get(b) and 2"),
    Fault("small integers do not wrap", "scalars.py",
          '        return f"({kind.c})({a} {symbol} {b})"\n    unsigned =',
          '        return f"{a} {symbol} {b}"\n    unsigned ='),
    Fault("-x of an int forgets that it was narrow", "scalars.py", "(-a.bounds[1], -a.bounds[0]) if symbol",
          "(a.bounds[0], a.bounds[1]) if symbol"),
    Fault("bounds of products are those of sums", "scalars.py",
          "corners = [_PYTHON[symbol](x, y) for x in a for y in b]", "corners = [x + y for x in a for y in b]"),
    Fault("half precision is not rounded", "scalars.py", 'return Number(found, f"half_t({text})")',
          'return Number(Scalar("float32"), text)'),
    Fault("maximum is fmax", "scalars.py", '"maximum": _call("maximum")', '"maximum": _call("maximum_number")'),
    Fault("degrees are radians", "scalars.py", '"rad2deg": _scaled(180 / math.pi)',
          '"rad2deg": _scaled(math.pi / 180)'),
    Fault("float constants lose digits", "scalars.py", "text = str(np.float32(value)) if single else repr(value)",
          'text = f"{value:.6e}"'),
    Fault("-x of unsigned integers is signed", "scalars.py", 'return f"wrapped_negative<{kind.c}>({_bared(texts[0])})"',
          'return f"absolute<{kind.c}>({_bared(texts[0])})"'),
    # -- numbers ------------------------------------------------------------------------------------------------------
    Fault("Python's min prefers the second of equals", "prelude.py",
          "T first_minimum(T a, T b) { return b < a ? b : a; }", "T first_minimum(T a, T b) { return a < b ? a : b; }"),
    Fault("round goes away from zero", "numbers.py", 'return cast(scalars.ufunc("rint", number), INT)',
          'return cast(Number(FLOAT, f"round((double){number.closed})"), INT)'),
    Fault("math.floor truncates", "numbers.py", 'return cast(Number(FLOAT, f"{name}({texts})"), INT)',
          'return cast(Number(FLOAT, f"trunc({texts})"), INT)'),
    Fault("np.where takes the other one", "numbers.py", "? {a.closed} : {b.closed}", "? {b.closed} : {a.closed}"),
    Fault("the imaginary part is the real one", "numbers.py", 'return Number(kind, f"{number.closed}.{name}")',
          'return Number(kind, f"{number.closed}.re")'),
    # -- helpers ------------------------------------------------------------------------------------------------------
    Fault("floor division of floats forgets the rest", "prelude.py",
          "    double quotient = (a - rest) / b;\n    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;",
          "    double quotient = (a - rest) / b;"),
    Fault("a shift by the width or more is one by the rest", "prelude.py",
          "return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);",
          "return (T)((unsigned long long)a << (by % (8 * sizeof(T))));"),
    Fault("conversions to integers wrap", "prelude.py", "if (sizeof(I) < 4) return (I)to_integer<int>(a);",
          "if (sizeof(I) < 4) return (I)(int)(a + 1);"),
    Fault("negative indices are not counted from the end", "prelude.py", "if (i < 0) i += length;",
          "if (i < 0) i = 0;"),
    Fault("half precision rounds down", "prelude.py", "0xfffu + (magnitude >> 13 & 1u)) >> 13", "0u) >> 13"),
    Fault("sign of NaN is 0", "prelude.py", "T sign(T a) { return a != a ? a :", "T sign(T a) { return"),
    # -- expressions --------------------------------------------------------------------------------------------------
    Fault("or needs its right operand where the left is true", "expressions.py",
          'needed = test if symbol == "and" else Number(BOOL, f"!{test.closed}")', "needed = test"),
    Fault("and, or of conditions are each other", "expressions.py",
          'sign = "&&" if symbol == "and" else "||"\n        return Number(BOOL',
          'sign = "||" if symbol == "and" else "&&"\n        return Number(BOOL'),
    Fault("a chain of comparisons is its last one", "expressions.py",
          "found = one if found is None else self.both(found, one)", "found = one"),
    Fault("conditional expressions are turned around", "expressions.py",
          'return Number(kind, f"{test.closed} ? {a.closed} : {b.closed}", bounds=bounds, atom=False)',
          'return Number(kind, f"{test.closed} ? {b.closed} : {a.closed}", bounds=bounds, atom=False)'),
    Fault("slices begin one later", "expressions.py", "return found.start, len(found), found.step",
          "return found.start + (found.start > 0), len(found), found.step"),
    Fault("negative known indices are off by one", "expressions.py", "return str(number.value % extent)",
          "return str(number.value % extent if number.value >= 0 else max(0, extent + number.value - 1))"),
    # -- assignments --------------------------------------------------------------------------------------------------
    Fault("a, b = b, a one after the other", "assignments.py",
          "            value = self._all_at_once(statement.targets[-1], value)", "            pass"),
    Fault("the second of two targets is computed again", "assignments.py", "            value = self.snapshot(value)\n",
          "            pass\n"),
    Fault("an array in place is not copied where it is read", "assignments.py",
          'source = self.materialised(source, "value")', "pass"),
    # -- calls --------------------------------------------------------------------------------------------------------
    Fault("an early return is ignored", "calls.py", "        if returns.jumps:\n            self.line(\"return;\")",
          "        if False:\n            self.line(\"return;\")"),
    Fault("keyword arguments go to the first parameter", "calls.py",
          "            found[name] = value\n        for parameter, default",
          "            found[taken[0]] = value\n        for parameter, default"),
    Fault("a generator ignores its conditions", "calls.py", "            if tests:\n", "            if False:\n"),
    # -- ways ---------------------------------------------------------------------------------------------------------
    Fault("break does not carry what it changed", "ways.py",
          "        self._carry(loop, loop.after, loop.missing_at_break)\n", ""),
    Fault("continue does not carry what it changed", "ways.py",
          "        self._carry(self.loops[-1], self.loops[-1].head, self.loops[-1].missing)\n", ""),
    Fault("break is dropped", "ways.py", '        self.line("break;")\n        return False', "        return False"),
    Fault("else of a loop is always done", "ways.py",
          "        if not loop.broke:\n            return self.statements",
          "        if True:\n            return self.statements"),
    Fault("what a turn carries is stored one after the other", "ways.py",
          "values = [self.snapshot(value) if len(pending) > 1 else value for _, value in pending]",
          "values = [value for _, value in pending]"),
    Fault("the bounds of a range ignore its step", "ways.py",
          "bounds = (min(found[0], found[-1]), max(found[0], found[-1])) if found else bounds",
          "bounds = (0, 0) if found else bounds"),
    Fault("enumerate counts from one", "ways.py", 'return Tuple((index, *items)) if',
          'return Tuple((scalars.binary("+", index, literal(1)), *items)) if'),
    # -- reader and captures ------------------------------------------------------------------------------------------
    Fault("a known condition takes its other way", "ways.py",
          "return self.statements(statement.body if test.value else statement.orelse, after)",
          "return self.statements(statement.orelse if test.value else statement.body, after)"),
    Fault("all captures are the first", "reader.py", "        return self._numbers[found]\n", "        return 0\n"),
    # -- reductions and arrays ----------------------------------------------------------------------------------------
    Fault("argmin passes over a NaN", "reductions.py", '    if one.type.kind != "f":\n        return test',
          "    if True:\n        return test"),
    Fault("sums of integers have the rows' type", "reductions.py",
          '    if kind.kind in "bi":\n        return Scalar("int64")\n', ""),
    Fault("a reduction skips the last element", "reductions.py", "loops = reindexed(array, (array.shape[0] - 1,)",
          "loops = reindexed(array, (array.shape[0] - 2,)"),
    Fault("vdot does not conjugate", "reductions.py", 'scalars.ufunc("conjugate", x), a) if', 'x, a) if'),
    Fault("clip forgets its lower end", "arrays.py", 'for name, bound in (("maximum", low), ("minimum", high)):',
          'for name, bound in (("minimum", high),):'),
    Fault("np.arange ignores its step", "arrays.py", 'f"{found.start} + {found.step} * {index}"',
          'f"{found.start} + {index}"'),
)
