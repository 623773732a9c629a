"""Full disks and limits on file sizes."""

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
    """Limits the size of all files to `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@attrs.define
class Disk:
    """A memory disk, mounted at a folder."""

    folder: Path

    def resize(self, kilobytes: int) -> None:
        """Changes the capacity of the disk."""
        subprocess.run(
            ["mount", "-o", f"remount,size={kilobytes}k", self.folder], check=True, capture_output=True
        )


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    """Mounts a memory disk at a folder; skips the test where that is not possible."""
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk in memory can be mounted here: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
