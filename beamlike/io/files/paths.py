"""Lists and opens files, both local files and, through pyarrow's file systems, those of object stores."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, Final, TypeAlias

from beamlike.errors import nearest
from beamlike.io.files.order import in_order
from beamlike.io.files.unpacking import Unpacked, codec_of
from beamlike.io.sources import FoundFile
from beamlike.system.path_names import is_remote, with_slashes

_FILE_SCHEME: Final = re.compile(r"file:(?://(?:localhost)?)?(?=/)")
_WILDCARD: Final = re.compile(r"[*?\[]")
_DEEP: Final = re.compile(r"(?:^|(?<=/))\*\*(?:/|$)")
_GLOB: Final = re.compile(r"(\*\*)|(\*)|(\?)|(\[[^\]]+\])")
_POLARS: Final = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "hf"}
)
_ESCAPED_BYTE: Final = re.compile(rb"\\x([0-9a-f]{2})")
_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_IN_BUCKETS: Final = frozenset({"s3", "s3a", "s3n", "gs", "gcs"})
LONGEST_NAME: Final = 255
"""The greatest length of the name of a file or folder on common file systems, in bytes."""


AnyPath: TypeAlias = str | os.PathLike[str]
"""A path as users write it."""


def path_text(path: AnyPath) -> str:
    """Returns a declared path as text. A `file:` path becomes a local path."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(f"a path is text or a pathlib.Path, not {path!r}")
    if not text:
        raise ValueError("a path must not be empty")
    text = _FILE_SCHEME.sub("", text, count=1)
    return text if is_remote(text) else with_slashes(text)


def path_text_if_any(path: AnyPath | None) -> str | None:
    """Returns the path as text; None for None."""
    return None if path is None else path_text(path)


def path_texts(path: AnyPath | Sequence[AnyPath]) -> str | tuple[str, ...]:
    """Returns a path, or a list of paths, as text. Raises `ValueError` for an empty list."""
    if not isinstance(path, list | tuple):
        return path_text(path)  # type: ignore[arg-type]  # an error says more
    if not path:
        raise ValueError("a list of paths must not be empty")
    return tuple(map(path_text, path))


def absolute(path: str) -> str:
    """Returns the absolute path, for processes with another working directory. A path with a scheme stays unchanged."""
    return path if is_remote(path) else with_slashes(os.path.abspath(path))


def real(path: str) -> str:
    """Returns the canonical path, which is equal for all paths to the same place on this machine."""
    return path.rstrip("/") if is_remote(path) else with_slashes(os.path.realpath(path))


def read_by_polars(path: str) -> bool:
    """True if polars can read the path's storage itself. Pyarrow reads other storage, such as HDFS."""
    return not is_remote(path) or path.partition("://")[0].lower() in _POLARS


def uri(path: str) -> str:
    """Returns the path in the form for Hadoop, whose default file system may be remote."""
    path = path_text(path)
    return path if is_remote(path) else f"file:{os.path.abspath(path)}"


def is_pattern(path: str) -> bool:
    """True if the path has wildcards, and no file has this name."""
    return _WILDCARD.search(path) is not None and (is_remote(path) or not os.path.lexists(path))


def root_of(pattern: str) -> str:
    """Returns the folder before the first wildcard of a glob; empty for the current folder."""
    wildcard = _WILDCARD.search(pattern)
    return pattern if wildcard is None else pattern[: pattern.rfind("/", 0, wildcard.start()) + 1]


def list_files(path: str, roots: Sequence[str] = ()) -> list[FoundFile]:
    """Returns the files that a path, directory or glob matches, sorted by modification time.

    Directories are searched recursively, except links to one of their parents. Below the path, files and directories
    whose name begins with `_` or `.` are skipped, and so are files whose name shows that they are still being copied.
    Other names that cannot be read, such as links that lead out of the path and of the `roots`, are among the files:
    `unreadable` has the reason.

    Raises `FileNotFoundError`, with the message of `nothing_at`, if nothing matches, and `PermissionError` if the path,
    or the folder before the first wildcard of a glob, cannot be listed.
    """
    found = set(_remote(path) if is_remote(path) else _local(path, (path, *roots)))
    if not found and is_remote(path) and is_pattern(path):
        require_bucket(path)
        raise FileNotFoundError(nothing_at(path))
    return in_order(found, "modified")


def require_something(path: str) -> None:
    """Raises `FileNotFoundError`, like `list_files`, if the path or glob matches nothing, and `PermissionError` if a
    glob begins in a folder that cannot be listed.
    """
    if is_remote(path):
        list_files(path)
    elif not _named(path):
        raise FileNotFoundError(nothing_at(path))


def require_bucket(path: str) -> None:
    """Raises `FileNotFoundError` if the path is in a bucket that does not exist."""
    from pyarrow import fs

    if path.partition("://")[0].lower() in _IN_BUCKETS:
        system, base = file_system(root_of(path))
        name = base.partition("/")[0]
        try:
            found = system.get_file_info(name)
        except OSError:  # this request may be forbidden although listing the files is allowed
            return
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {name!r}, for {path!r}")


def _local(path: str, roots: Sequence[str]) -> Iterator[FoundFile]:
    require_something(path)
    for match in _named(path, roots):
        yield from _under(match, roots)


def _named(path: str, roots: Sequence[str] = ()) -> list[str]:
    """Returns the local paths that a path or glob matches. Raises `PermissionError` if it may not look for them."""
    if not is_pattern(path):
        with suppress(FileNotFoundError, NotADirectoryError):  # not for missing permissions
            os.stat(path)
            return [path]
        return []
    _require_listable(root_of(path) or os.curdir)
    given = path[: _WILDCARD.search(path).start()]  # type: ignore[union-attr]
    matches = [match for match in _matching(path, len(given), roots or (path,)) if not is_hidden(match)]
    return [match for match in matches if not is_copied(match) or os.path.isdir(match)]


def _require_listable(folder: str) -> None:
    """Raises `PermissionError`, as listing would, if the folder exists and cannot be listed, or cannot be reached."""
    with suppress(FileNotFoundError, NotADirectoryError):
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
        if is_folder and not _may(folder, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def _matching(pattern: str, given: int, roots: Sequence[str]) -> Iterator[str]:
    """Yields the matches of a glob, without links back to a parent, and folders that it cannot search.

    The first `given` characters of the glob have no wildcards.
    """
    deep = _DEEP.search(pattern) if pattern != "**" else None  # `**` alone: the current folder, at any depth
    if deep is None:
        found = [*map(with_slashes, glob.glob(pattern))]
        yield from (match for match in found if not _goes_round(match, given))
        below = {match[: match.rfind("/")] for match in found}
        yield from (folder for folder in _closed(pattern, given) if folder not in below)
        return
    head, tail = pattern[: deep.start()], pattern[deep.end() :]
    is_glob = _WILDCARD.search(head) is not None
    for base in _matching(head, given, roots) if is_glob else [head]:
        if is_glob and not _may_look_in(base):
            yield base.rstrip("/")
            continue
        for folder, names in _walk(base or os.curdir, roots):
            if not tail:  # all folders below match
                yield folder
                break
            inner = glob.escape(folder if base else folder[2:])  # without the leading `./`
            yield from _matching(os.path.join(inner, tail), len(inner), roots)
            paths = (os.path.join(folder, name) for name in names)
            yield from filter(os.path.isdir, paths)


def _closed(pattern: str, given: int) -> Iterator[str]:
    """Yields the folders on the way of a glob in which it may not look, from the one after `given` characters on."""
    first = pattern.rfind("/", 0, given + 1)
    for slash in re.finditer("/", pattern):
        if slash.start() >= first:
            folders = map(with_slashes, glob.glob(pattern[: slash.start()]))
            yield from (folder for folder in folders if os.path.isdir(folder) and not _may_look_in(folder))


def _may_look_in(folder: str) -> bool:
    return _may(folder, os.R_OK | os.X_OK)


def _may(path: str, rights: int) -> bool:
    return os.access(path, rights, effective_ids=os.access in os.supports_effective_ids)


def _goes_round(match: str, given: int) -> bool:
    """True if a folder in the path, after its first `given` characters, is a link back to a parent."""
    ends = (end for end in range(max(given, 1), len(match) + 1) if match[end : end + 1] in ("/", ""))
    return any(leads_back(match[:end]) for end in ends)


def leads_back(folder: str) -> bool:
    """True if the folder is a link, direct or through other links, to one of its parents."""
    if not os.path.islink(folder):
        return False
    target, above = os.path.realpath(folder), os.path.abspath(folder)
    while above != (above := os.path.dirname(above)):
        if os.path.realpath(above) == target:
            return True
    return False


def nothing_at(path: str) -> str:
    """Returns the message for a path or glob that matches nothing. For a local path it names the deepest existing
    folder.
    """
    what = f"nothing matches {path!r}" if is_pattern(path) else f"there is no file or directory {path!r}"
    if is_remote(path):
        return what
    folder, name = os.path.split(os.path.abspath(path))
    while not _named(folder):
        folder, name = os.path.split(folder)
    found = set[str]()
    with suppress(PermissionError):  # a folder that may be entered, and not listed
        found = {os.path.basename(one) for one in _named(os.path.join(folder, "*"))}
    if name in found:  # a dangling link, or a file in place of a directory
        return what
    return f"{what}: {folder!r} has no {name!r}{nearest(name, sorted(found))}"


def leads_out(path: str, roots: Sequence[str]) -> bool:
    """True if the local path leads, through a link, to a place that is in none of the roots, which may be globs."""
    where = real(path)
    if path in roots or where == absolute(path):
        return False
    inside = (real(root_of(root) or os.curdir if is_pattern(root) else root) for root in roots)
    return not any(where == root or where.startswith(f"{root.rstrip('/')}/") for root in inside)


def _under(root: str, roots: Sequence[str]) -> Iterator[FoundFile]:
    closed = root not in roots and not _may_look_in(root)
    if not os.path.isdir(root) or closed or leads_out(root, roots):
        yield from _found(root)
        return
    for folder, names in _walk(root, roots):
        for name in names:
            yield from _found(os.path.join(folder, name))


def _walk(root: str, roots: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the folder and all folders below it with the names of their files. Hidden names and links back
    are skipped. Links that lead out of the roots, and folders that cannot be listed, are among the files.
    """
    failed: list[OSError] = []
    for folder, folders, names in os.walk(root, followlinks=True, onerror=failed.append):
        below = [name for name in folders if not (is_hidden(name) or leads_back(os.path.join(folder, name)))]
        links = [name for name in below if os.path.islink(os.path.join(folder, name))]
        out = [name for name in links if leads_out(os.path.join(folder, name), roots)]
        folders[:] = [name for name in below if name not in out]
        yield folder, [name for name in names if not (is_hidden(name) or is_copied(name))] + out
    for error in failed:
        if isinstance(
            error, FileNotFoundError | NotADirectoryError
        ):  # removed meanwhile, or part of a glob only
            continue
        if error.filename == root:
            raise error
        yield os.path.split(error.filename)[0], [os.path.basename(error.filename)]


def _found(path: str) -> Iterator[FoundFile]:
    """Yields the file, or nothing if it was removed since its folder was listed.

    What is there, but cannot be read, is yielded as well: `unreadable` has the reason.
    """
    modified = size = 0
    try:
        status = os.stat(path) if os.path.exists(path) else os.lstat(path)
        modified, size = status.st_mtime_ns // 1_000_000, status.st_size
    except FileNotFoundError:
        return
    except PermissionError:  # in a folder that can be listed only
        pass
    yield FoundFile(with_slashes(os.fsencode(path).decode(errors="backslashreplace")), modified, size)


def unreadable(path: str, roots: Sequence[str]) -> str | None:
    """Returns the reason why what `list_files` has found is no file to read; None for files, and for what is gone."""
    if is_remote(path):
        return None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        named = _ESCAPED_BYTE.sub(lambda byte: bytes([int(byte[1], 16)]), os.fsencode(path))
        if os.path.lexists(path):
            return "it is a link to a file that does not exist"
        return "its name is not UTF-8; rename it" if os.path.lexists(named) else None
    except OSError as error:
        return f"it cannot be opened: {error.strerror}"
    if leads_out(path, roots):
        return f"it is a link to {real(path)!r}, outside of the path that is read; name that in path=, too"
    if stat.S_ISREG(mode):
        return None if _may(path, os.R_OK) else "it cannot be opened: Permission denied"
    if stat.S_ISDIR(mode):
        return "it is a folder that cannot be listed"
    return f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, and no regular file"


def is_hidden(path: str) -> bool:
    """True for the name of a hidden file, which readers skip."""
    return os.path.basename(path.rstrip("/")).startswith(("_", "."))


def is_copied(path: str) -> bool:
    """True for a name that Hadoop and other programs use for an incomplete file until it is renamed."""
    return path.endswith(("._COPYING_", ".tmp"))


def _remote(path: str) -> Iterator[FoundFile]:
    """Lists files like `_local`, with one recursive listing of the directory before the first wildcard."""
    from pyarrow import fs

    root = root_of(path)
    system, base = file_system(root)
    here = system.get_file_info(base)
    if root == path and here.type == fs.FileType.NotFound:
        require_bucket(path)
        raise FileNotFoundError(nothing_at(path))
    if here.type == fs.FileType.File:
        yield FoundFile(path, (here.mtime_ns or 0) // 1_000_000, here.size)
        return
    for info in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
        below = info.path[len(base) :].strip("/")
        name = f"{root.rstrip('/')}/{below}"
        hidden = is_copied(below) or any(is_hidden(part) for part in below.split("/"))
        if info.type == fs.FileType.File and not hidden and (root == path or _matches(path, name)):
            yield FoundFile(name, (info.mtime_ns or 0) // 1_000_000, info.size)


def _matches(pattern: str, name: str) -> bool:
    """True if the glob matches the file or a directory above it. `*` does not match a slash."""
    parts, end = [], 0
    for token in _GLOB.finditer(pattern):
        deep, star, one, choice = token.groups()
        wild = ".*" if deep else "[^/]*" if star else "[^/]" if one else choice.replace("[!", "[^", 1)
        parts += [re.escape(pattern[end : token.start()]), wild]
        end = token.end()
    return re.fullmatch("".join(parts) + re.escape(pattern[end:]) + "(/.*)?", name) is not None


def file_system(path: str) -> tuple[Any, str]:
    """Returns the file system for a path with a scheme, and the path in it. Requests that fail because the service is
    briefly unwell are repeated. Raises `ValueError` for an unknown scheme.
    """
    from beamlike.io.files.remote import RetriedFileSystem

    system, bare = _file_system(path)
    return RetriedFileSystem(system), bare


def _file_system(path: str) -> tuple[Any, str]:
    from pyarrow import ArrowInvalid

    from beamlike.io.files.access import access_to, s3_of

    access = access_to(path)
    if access is not None and (system := s3_of(access)) is not None:
        return system, path.partition("://")[2].rstrip("/")
    try:
        # Hadoop, and so Spark, has other schemes for S3.
        return _from_uri(re.sub(r"^s3[an]://", "s3://", path))
    except ArrowInvalid as error:
        raise ValueError(f"cannot list the files of {path!r}: {error}") from error


def _from_uri(uri: str) -> tuple[Any, str]:
    from pyarrow import ArrowInvalid, fs

    if uri.startswith("s3://") and "?" not in uri:
        # A small object is then written with one request, not with the three of a multipart upload.
        with suppress(ArrowInvalid):  # pyarrow 20 does not have the option
            return fs.FileSystem.from_uri(f"{uri}?allow_delayed_open=true")  # type: ignore[no-any-return]
    return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading. It is decompressed according to the end of its name. Reading may raise `Damaged`."""
    codec = codec_of(path)
    return _open(path) if codec is None else Unpacked(codec, partial(_open, path))  # type: ignore[return-value]


def write_file(path: str, content: bytes) -> None:
    if is_remote(path):
        system, bare = file_system(path)
        system.write_whole(bare, content)
    else:
        with open(path, "wb") as file:
            file.write(content)


def _open(path: str, compression: str | None = None) -> BinaryIO:
    if is_remote(path):
        system, bare = file_system(path)
        file = system.open_input_file(bare).buffered()
        if compression is None:
            return file  # type: ignore[no-any-return]
        import pyarrow

        packed = pyarrow.PythonFile(file, mode="r")
        return pyarrow.CompressedInputStream(packed, compression)  # type: ignore[no-any-return]
    if compression is None:
        return open(path, "rb")
    import pyarrow

    return pyarrow.input_stream(path, compression=compression)  # type: ignore[no-any-return]
