"""Sentences about input that a run did not read: files that changed after they were listed, and columns left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from types import MappingProxyType

from beamlike.records.model import MOST_UNREAD, BatchRecord
from beamlike.system.after_end import AFTER_END

Files = Mapping[str, Mapping[str, str]]
"""The files that changed, each with the kind of change, by source."""


def unread_input(batches: Iterable[BatchRecord], changed: Files = MappingProxyType({})) -> Iterator[str]:
    """Yields a sentence for each source with changed files, one for each that is over and has later input, and one for
    each with columns that it leaves out.

    `changed` has files that changed after the last batch.
    """
    files = {name: dict(found) for name, found in changed.items()}
    columns: dict[str, dict[str, str]] = {}
    for batch in batches:
        for name, source in batch.sources.items():
            if source.changed:
                files.setdefault(name, {}).update(source.changed)
            for column, file in source.left_out.items():
                columns.setdefault(name, {}).setdefault(column, file)
    for name, both in files.items():
        late = {file: how for file, how in both.items() if how.startswith(AFTER_END)}
        if late:
            file, how = next(iter(late.items()))
            yield f"source `{name}` has ended, and does not read {file!r}{_more(late)}, which came later ({how})"
        if not (found := {file: how for file, how in both.items() if file not in late}):
            continue
        file, how = next(iter(found.items()))
        yield (
            f"source `{name}` does not read what was written to file {file!r}{_more(found)} after it was listed ({how})"
        )
    for name, found in columns.items():
        column, file = next(iter(found.items()))
        yield (
            f"source `{name}` leaves out column {column!r}{_more(found)}, which file {file!r} has: declare it with "
            "schema="
        )


def _more(found: Sized) -> str:
    """Formats the number of the other items of `found`; "at least" if the record may have left out some."""
    least = "at least " if len(found) >= MOST_UNREAD else ""
    return f" (and {least}{len(found) - 1:,} more)" if len(found) > 1 else ""
