"""Commands that install the requirements of optional features."""

from __future__ import annotations

#: The extras of setup.cfg that hints name.
EXTRAS = ("cuda", "pycuda", "mpi", "ucx", "files", "s3", "hdfs", "zarr", "hdf5", "text", "dataframe", "aws",
          "metrics", "dashboard", "plot", "report", "examples")


def install(*extras: str) -> str:
    """Return the command that installs extras; vispark is installed from a checkout, which no package index has.

    Examples
    --------
    >>> install("text")
    "pip install '.[text]' in a checkout of vispark"
    """
    for extra in extras:
        if extra not in EXTRAS:
            raise KeyError(f"there is no extra {extra!r}; there are {', '.join(EXTRAS)}")
    return f"pip install '.[{','.join(extras)}]' in a checkout of vispark"
