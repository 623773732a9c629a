"""The folder for temporary files of a user: no other user can enter it, or have put a link into it."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress


def own_folder() -> str:
    """Returns the folder of this user below the temporary folder of the machine. It is created if needed.

    Raises `PermissionError` if another user has made what is there, or may write there.
    """
    if not hasattr(os, "getuid"):
        return tempfile.gettempdir()  # Windows has one for each user
    path = os.path.join(tempfile.gettempdir(), f"beamlike-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)  # follows no link
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{path!r} is no folder of this user alone, so another user may have made it: remove it, or set TMPDIR to "
            "a folder of your own"
        )
    return path
