"""Generated functions, their kernels and Python with NumPy scalars, compared element by element, many at a time.

A compilation costs about a second and a kernel in it some milliseconds, so functions are drawn by the hundred and
compiled in one unit. ``python -m tests.property.differential --help`` says how it is run.

A *pair* is a node of the form, an operator, a library function or an attribute, and a dtype. A function that is
compared without a difference counts once for each pair in it: a node with the dtypes of its operands and of its value,
as the translator found them when it wrote the kernel; a statement with those of the function's elements. Pairs of nodes
and operators are counted in functions, which are all different, those of library functions and attributes in records.
What a type forbids cannot be met: then the shortest template of the name must be an error, here and in Python.

======================  ===============================================================================================
``data.py``             what the functions are given: NaN, infinities, extremes, zeros of both signs, denormals
``probes.py``           every operator and library function, with what "equal" means for it
``functions.py``        functions drawn around them: branches, loops, calls, closures, rows, arrays of their own
``units.py``            many kernels in one compilation, launched on a device: the only place that knows kernels' ABI
``compare.py``          the function with NumPy scalars, and what differs
``coverage.py``         which nodes and functions met which dtypes
``verdicts.py``         which probes run for which dtypes, and which are errors, as in Python
``dealing.py``          which probes a function has; the units that are steered to what was met least
``hands.py``            processes that work on units; a unit that ends its process is halved
``campaign.py``         all of it over processes
``report.py``           the table that is kept
======================  ===============================================================================================
"""
