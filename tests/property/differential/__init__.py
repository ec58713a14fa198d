"""Generated functions, their kernels and Python with NumPy scalars, compared element by element, many at a time.

A compilation costs about a second and a kernel in it some milliseconds, so functions are drawn by the hundred and
compiled in one unit. ``python -m tests.property.differential --help`` says how it is run.

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
