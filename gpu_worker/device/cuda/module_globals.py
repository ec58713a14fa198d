"""Values of module globals (constants, report pointers) that are set when a module is loaded on a GPU."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from gpu_worker.device.base import Source
from gpu_worker.system.fault_report import POINTER


def variables(source: Source, symbols: Mapping[str, str], report: np.ndarray) -> list[tuple[str, str, bytes]]:
    """Return name, symbol and value of each: its constants, and its pointer to a report.

    ``report`` is pinned memory, which has one address for the host and the device.
    """
    constants = [(name, symbols[name], data) for name, data in source.constants]
    return constants + ([(POINTER, POINTER, struct.pack("=Q", report.ctypes.data))] if POINTER in source.text else [])
