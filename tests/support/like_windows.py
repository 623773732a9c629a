"""A process with the restrictions of Windows: `install()` removes calls and refuses operations that Windows lacks.

The tests do not run on Windows itself. Call it before beamlike is imported, in a process of its own.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import sys
import time
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

# These packages use Linux calls, because they detect Linux.
_FIRST = ("subprocess", "tempfile", "polars", "pyarrow.dataset", "rich.console")
_MODULES = ("fcntl", "grp", "nis", "pty", "pwd", "resource", "syslog", "termios", "tty")
# The names of `os` in the documentation of Python 3.11 to 3.14 without "Windows" in their availability.
_OS = """
O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_EVTONLY O_LARGEFILE O_NDELAY O_NOATIME O_NOCTTY
O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC O_TMPFILE SEEK_DATA SEEK_HOLE WNOHANG chown chroot confstr
copy_file_range ctermid eventfd fchdir fchmod fchown fdatasync fork forkpty fpathconf fstatvfs getegid
geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid getsid
getuid getxattr initgroups killpg lchown listxattr lockf major makedev memfd_create minor mkfifo mknod
nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp pread
preadv pwrite pwritev readv register_at_fork removexattr sched_getaffinity sched_getparam
sched_getscheduler sched_rr_get_interval sched_setaffinity sched_yield sendfile setegid seteuid setgid
setgroups setpgid setpriority setregid setresgid setresuid setreuid setsid setuid setxattr splice statvfs
sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
"""
_SIGNALS = """
SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGTTIN
SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask
setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
"""


def install(*, locks: bool = True) -> None:
    """Changes this process. Without `locks` it has no `msvcrt`, like a platform without any locks."""
    for name in _FIRST:
        import_module(name)
    _refuse(Files(), locks=locks)
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for where, names in ((os, _OS), (signal, _SIGNALS), (time, "tzset pthread_getcpuclockid")):
        for name in names.split():
            where.__dict__.pop(name, None)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    warnings.filterwarnings("error", category=EncodingWarning, module="(beamlike|stages|windowing)")


class Files:
    """The files and folders that this process has open or mapped into memory."""

    def below(self, path: Any) -> str | None:
        """Returns an open file with this path or below it, or None."""
        top = os.path.realpath(path)
        return next((name for name in self._all() if name == top or name.startswith(f"{top}/")), None)

    def _all(self) -> set[str]:
        found = set()
        for number in os.listdir("/proc/self/fd"):
            try:
                found.add(os.readlink(f"/proc/self/fd/{number}"))
            except FileNotFoundError:
                continue
        with open("/proc/self/maps", "rb") as maps:
            return found | {line.split(None, 5)[5].strip().decode() for line in maps if line.count(b"/")}


def _refuse(files: Files, *, locks: bool) -> None:
    import fcntl

    opened, fsync = os.open, os.fsync

    def open_file(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Windows cannot open a folder", path)
        return opened(path, flags, *rest, **named)

    def sync(number: Any) -> None:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Windows cannot sync a file that is open for reading")
        fsync(number)

    def closed(call: Callable[..., None]) -> Callable[..., None]:
        def called(*paths: Any, **named: Any) -> None:
            for path in paths:
                if isinstance(path, str | bytes | os.PathLike) and (found := files.below(os.fsdecode(path))):
                    raise PermissionError(errno.EACCES, f"{call.__name__}: {found} is open", os.fspath(path))
            call(*paths, **named)

        return called

    os.open, os.fsync = open_file, sync
    for name in ("remove", "unlink", "rename", "replace"):
        setattr(os, name, closed(getattr(os, name)))
    sys.modules["msvcrt"] = _msvcrt(fcntl.fcntl, fcntl.F_OFD_SETLK) if locks else None  # type: ignore[assignment]


def _msvcrt(control: Callable[..., Any], command: int) -> types.ModuleType:
    """Returns a module with locks as on Windows: a lock belongs to an open file, not to a process."""
    module: Any = types.ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = range(3)

    def locking(number: int, mode: int, size: int) -> None:
        kind = 2 if mode == module.LK_UNLCK else 1  # F_UNLCK, F_WRLCK
        here = os.lseek(number, 0, os.SEEK_CUR)
        try:
            control(number, command, struct.pack("hhqqi", kind, os.SEEK_SET, here, size, 0))
        except OSError as error:
            raise PermissionError(errno.EACCES, "the region is locked") from error

    module.locking = locking
    return module
