"""Detects files that were changed after a run listed them. New content of a file is not read, as its path is known."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, Self, get_args

import attrs

from beamlike.errors import SourceError
from beamlike.io.sources import FoundFile
from beamlike.system.after_end import AFTER_END

OnChange = Literal["ignore", "error"]
"""The reaction to a file that was changed after it was listed: a warning, or a failure of the run."""

_LOG = logging.getLogger("beamlike")


@attrs.frozen
class Stamp:
    """The state of a file in a listing: its modification time (milliseconds since 1970) and its size in bytes."""

    modified: int
    size: int

    @classmethod
    def of(cls, file: FoundFile) -> Self:
        """Returns the stamp of a listed file."""
        return cls(file.modified, file.size)

    @property
    def text(self) -> str:
        """The stamp as text for messages."""
        return f"{self.size:,} bytes of {_time(self.modified)}"

    @classmethod
    def noted(cls, modified: int | None, size: int | None) -> Self | None:
        """Returns the stamp of a file from its stored time and size; None for files listed by versions
        without stamps.
        """
        return None if modified is None or size is None else cls(modified, size)


@attrs.define
class Changes:
    """A comparison of a source's listings with the stamps of files that were listed before."""

    on_change: OnChange
    stamps: dict[str, Stamp] = attrs.field(factory=dict)
    _unreported: dict[str, str] = attrs.field(factory=dict, init=False)
    # Files are listed in another thread than the one that reports batches.
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False, eq=False)

    @classmethod
    def of(cls, source: object, stamps: Mapping[str, Stamp | None]) -> Self:
        """Creates the comparison for a source, with the stamps that its run already stores."""
        known = {file: stamp for file, stamp in stamps.items() if stamp is not None}
        return cls(getattr(source, "on_change", "ignore"), known)

    def look(self, found: Iterable[FoundFile]) -> None:
        """Compares a listing with the known stamps. Logs each change once, then replaces the stamps.

        Raises `SourceError` with `on_change="error"`.
        """
        changed = list[tuple[FoundFile, Stamp]]()
        for file in found:
            stamp = Stamp.of(file)
            before = self.stamps.setdefault(file.path, stamp)
            if before != stamp:
                changed.append((file, before))
        if not changed:
            return
        if self.on_change == "error":
            raise SourceError(
                f"{_message(changed)}. Put its rows into a new file, and put back the one that was read"
            )
        _LOG.warning(
            "%s. Write new rows to new files; on_change='error' fails the run here", _message(changed)
        )
        self.stamps |= {file.path: Stamp.of(file) for file, _ in changed}
        with self._lock:
            self._unreported |= {file.path: _change(file, before) for file, before in changed}

    def look_after_end(self, found: Iterable[FoundFile]) -> None:
        """Logs and reports each file that arrived after the source was over, once.

        Raises `SourceError` with `on_change="error"`.
        """
        new = [file for file in found if file.path not in self.stamps]
        if not new:
            return
        others = f", and {len(new) - 1:,} more" if len(new) > 1 else ""
        message = (
            f"file {new[0].path!r} ({Stamp.of(new[0]).text}){others} came after the source was over (complete=True), "
            "and is not read"
        )
        if self.on_change == "error":
            raise SourceError(f"{message}: read it as another source, or with a new checkpoint")
        _LOG.warning("%s: read it as another source; on_change='error' fails the run here", message)
        self.stamps |= {file.path: Stamp.of(file) for file in new}
        with self._lock:
            self._unreported |= {file.path: f"{AFTER_END}, {Stamp.of(file).text}" for file in new}

    def report(self) -> dict[str, str]:
        """Returns the files that were changed since the last call, each with its sizes and times before and now."""
        with self._lock:
            reported, self._unreported = self._unreported, {}
        return reported


def check_on_change(owner: object, attribute: attrs.Attribute[OnChange], value: object) -> None:
    """Raises `ValueError` for an invalid value of `on_change`."""
    if value not in get_args(OnChange):
        raise ValueError(
            f"{type(owner).__name__}: on_change must be 'ignore' (a changed file only warns) or 'error', not {value!r}"
        )


def _message(changed: list[tuple[FoundFile, Stamp]]) -> str:
    file, before = changed[0]
    others = f", and {len(changed) - 1:,} more" if len(changed) > 1 else ""
    return (
        f"file {file.path!r} was changed after it was listed ({_change(file, before)}){others}: a path is read once, "
        "so what was written to it since is not read"
    )


def _change(file: FoundFile, before: Stamp) -> str:
    return f"{before.text}, now {Stamp.of(file).text}"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
