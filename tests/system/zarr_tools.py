"""What tests need that let zarr-python and xarray read files in their own process."""

from __future__ import annotations

from pathlib import Path

import zarr


def start_threads(folder: Path) -> None:
    """Start the threads that zarr-python keeps from its first use on, to the end of the process: one with an event loop
    and, for files that it reads itself, a pool, which gets one thread here.
    """
    zarr.config.set({"threading.max_workers": 1})
    zarr.create_group(folder / "first_use.zarr")
