"""The notebook in which this process runs, if it is the kernel of one."""

from __future__ import annotations

import sys
from typing import Any


def notebook_display() -> Any:
    """Returns IPython's `display`, whose output a notebook shows and can update; None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    # IPython in a terminal has no kernel.
    return None if getattr(shell, "kernel", None) is None else ipython.display.display
