"""Storage that is full."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest


@contextmanager
def full(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@attrs.define
class Disk:
    """A disk in memory, mounted at a folder."""

    folder: Path

    def resize(self, kilobytes: int) -> None:
        """Gives the disk so much room."""
        subprocess.run(
            ["mount", "-o", f"remount,size={kilobytes}k", self.folder], check=True, capture_output=True
        )


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    """A disk in memory at a folder. Skips the test where none can be mounted."""
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk in memory can be mounted here: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
