"""The base class of tables in open formats: tasks write files that are not visible, and one commit publishes a batch.

check      the driver reads the table's rules, or makes the table
prepare    tasks write their rows to files that no version of the table contains
settle     the driver commits the files of a batch, with its number, unless the table has the batch
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, Self, get_args
from uuid import uuid4

import attrs
import polars as pl

from beamlike.errors import PlanError, nearest
from beamlike.io.base import Part
from beamlike.io.files.part_files import part_name
from beamlike.io.lake.rules import Rules, Slice
from beamlike.io.lake.types import storable, stored
from beamlike.io.options import FOR_SINKS
from beamlike.io.sinks import (
    ARE_DOUBLED,
    STAY_UNTIL_REPLACED,
    RowKey,
    SinkInput,
    overtaken,
    require_unique,
)
from beamlike.rows.dtypes import type_name
from beamlike.system.locks import Lock, left_by_killed
from beamlike.system.path_names import file_name, is_remote
from stages.facts import SPARSE, from_json, to_json

Mode = Literal["append", "upsert"]


def is_mode(owner: object, attribute: attrs.Attribute[Mode], value: object) -> None:
    """Raises `ValueError` unless the value is one of the two ways to write."""
    modes = get_args(Mode)
    if value not in modes:
        kind = type(owner).__name__
        raise ValueError(f"{kind}: mode may be 'append' or 'upsert', not {value!r}{nearest(value, modes)}")


@attrs.frozen
class Written:
    """A written file: its row count, its size in bytes, and the values of its partition as text."""

    rows: int
    size: int
    values: dict[str, str | None] = attrs.field(factory=dict, metadata=SPARSE)


@attrs.define
class Known:
    """The state of a run at its table: the columns to write, the table's rules, and names for its batches.

    Connections to catalogs are cached by `token`, so that a run never uses those of an earlier one.
    """

    columns: tuple[str, ...] = ()
    rules: Rules | None = None
    names: dict[str, str] = attrs.field(factory=dict)
    token: str = attrs.field(factory=lambda: uuid4().hex)


@attrs.frozen(eq=False, slots=False)
class LakeTable:
    """The base class of tables that are written in transactions."""

    mode: Mode = attrs.field(default="append", validator=is_mode, kw_only=True, metadata=FOR_SINKS)
    _rows: SinkInput | None = attrs.field(default=None, kw_only=True, repr=False)
    _known: Known = attrs.field(factory=Known, kw_only=True, repr=False)

    distributed: ClassVar[bool] = True
    per_pane: ClassVar[bool] = False
    remembers: ClassVar[bool] = True

    @property
    def upserts(self) -> bool:
        """True if later panes replace rows."""
        return self.mode == "upsert"

    # What each format has of its own

    def _rules_found(self, schema: pl.Schema) -> Rules:
        """Returns the rules of the table. Makes it with this schema if it does not exist."""
        raise NotImplementedError

    def _folder(self) -> str:
        """Returns the path prefix of parts."""
        raise NotImplementedError

    def _save(self, rows: pl.DataFrame, path: str) -> int:
        """Writes a file to the storage of the table, and returns its size in bytes."""
        raise NotImplementedError

    def _load(self, path: str) -> pl.DataFrame:
        """Reads a file from the storage of the table."""
        raise NotImplementedError

    def _remove(self, path: str) -> None:
        """Removes a file from the storage of the table."""
        raise NotImplementedError

    def _noted(self, name: str) -> int | None:
        """Returns the last batch that is recorded in the table under this name."""
        raise NotImplementedError

    def _append(self, name: str, batch: int, parts: Mapping[str, Written]) -> None:
        """Commits the parts, and records the batch."""
        raise NotImplementedError

    def _insert(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        """Commits rows that the library of the format writes, and records the batch."""
        raise NotImplementedError

    def _merge(self, name: str, batch: int, rows: pl.DataFrame, gone: pl.DataFrame) -> None:
        """Commits `rows`, which replace those with their keys, deletes the keys of `gone`, and records the batch."""
        raise NotImplementedError

    # A sink

    def fitted(self, rows: SinkInput) -> Self:
        """Raises `PlanError` for a column that no table can hold."""
        for name, dtype in rows.schema.items():
            try:
                storable(dtype)
            except TypeError as error:
                raise PlanError(f"column {name!r}: {error}", step=rows.step) from None
        return attrs.evolve(self, rows=rows)

    def for_run(self) -> Self:
        return attrs.evolve(self, known=Known())

    def check(self) -> None:
        """Makes the table if it does not exist. Raises `PlanError` if it does not fit.

        An existing table may lack columns of the engine that do not identify rows.
        """
        feed = self._feed()
        wanted = stored(pl.DataFrame(schema=feed.schema)).schema
        if self.upserts and (flag := self._key().retracted) is not None and flag not in feed.user:
            wanted = pl.Schema({name: dtype for name, dtype in wanted.items() if name != flag})
        rules = self._rules_found(wanted)
        found = rules.columns
        wrong = [
            f"it has no column {name!r}" for name in feed.required if name in wanted and name not in found
        ]
        wrong += [
            f"its column {name!r} is {type_name(found[name])}, and not {type_name(dtype)}"
            for name, dtype in wanted.items()
            if name in found and found[name] != dtype
        ]
        wrong += [
            f"its column {name!r} may not be null, and the rows lack it" for name in rules.missing(wanted)
        ]
        wrong += rules.faults
        if wrong:
            raise PlanError(f"the table is not as this sink needs it: {'; '.join(wrong)}", step=feed.step)
        self._known.columns = tuple(name for name in wanted if name in found)
        self._known.rules = rules

    def _home(self) -> str:
        """Returns the folder or location of the table."""
        raise NotImplementedError

    def hold(self, run: str) -> Lock | None:
        """Locks the table for a run of this name. Raises `InUse`.

        Returns None if the table is not on this machine, as remote storage has no locks.
        """
        folder = self._home().removeprefix("file://")
        if is_remote(folder):
            return None
        for _ in left_by_killed(f"{glob.escape(folder)}/.beamlike-*.lock"):
            pass  # it goes
        return Lock.take(f"{folder}/.beamlike-{file_name(run)}.lock", f"the run {run!r}")

    def start(self, run: str) -> None:
        """Starts a new run: batches already in the table under this name belong to an earlier run."""
        if self._noted(run) is not None:
            self._known.names[run] = f"{run}/{uuid4().hex}"

    def latest_batch(self, run: str) -> int | None:
        return self._noted(run)

    def cut(self, run: str, batch: int) -> str:
        """Removes nothing, as later versions of the table may have rows of other writers."""
        return STAY_UNTIL_REPLACED if self.upserts else ARE_DOUBLED

    def from_anywhere(self) -> Self:
        return self

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes the part, and commits it."""
        self.settle(part.query, part.batch, self.prepare(frame, part), again=True)

    def prepare(self, frame: pl.DataFrame, part: Part) -> dict[str, str]:
        """Writes the part to files that no version of the table contains yet."""
        if frame.is_empty():
            return {}
        rules = self._rules()
        told = (self._key().pane, self._key().retracted) if self.upserts else ()
        extra = [name for name in told if name is not None and name not in self._known.columns]
        rows = stored(frame.select(*self._known.columns, *extra))
        rules.require_values(rows)
        slices = [Slice(rows)] if self._is_staged() else self._slices(rows)
        return dict(self._saved(one, part) for one in slices)

    def _saved(self, one: Slice, part: Part) -> tuple[str, str]:
        path = f"{self._folder()}{one.folder}{part_name(part, uuid4().hex)}.parquet"
        written = Written(len(one.rows), self._save(one.rows, path), dict(one.values))
        return path, to_json(written).decode()

    def _slices(self, rows: pl.DataFrame) -> Iterable[Slice]:
        """Returns the rows by partition."""
        return [Slice(rows)]

    def _rules(self) -> Rules:
        """Returns the rules of the table at the start of the run."""
        if self._known.rules is None:
            self.check()
        assert self._known.rules is not None
        return self._known.rules

    def _is_staged(self) -> bool:
        """True if tasks only stage rows, and the driver writes them."""
        return self.upserts or self._rules().by_library

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Commits the parts of a batch, unless the table has the batch already.

        Files of invalid attempts are in no version of the table, and are removed when the table is cleaned up. Raises
        `RuntimeError` if the table has a later batch, or has this one although no attempt can have written it.
        """
        if not parts:
            return
        name = self._known.names.get(run, run)
        noted = self._noted(name)
        is_new = noted is None or noted < batch
        if noted is not None and (noted > batch or (noted == batch and not again)):
            raise overtaken(batch, noted)
        if self._is_staged():
            if is_new:
                self._write_staged(name, batch, pl.concat([self._load(path) for path in sorted(parts)]))
            for path in parts:
                self._remove(path)
        elif is_new:
            self._append(name, batch, {path: from_json(Written, facts) for path, facts in parts.items()})

    def _write_staged(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        if not self.upserts:
            self._insert(name, batch, rows)
            return
        key = self._key()
        require_unique(rows, key)
        # What came last of a row is what counts.
        rows = rows.unique(key.columns, keep="last", maintain_order=True)
        gone = rows.clear()
        if key.retracted is not None:
            gone, rows = rows.filter(key.retracted), rows.filter(~pl.col(key.retracted))
        self._merge(name, batch, rows.select(self._known.columns), gone.select(key.columns))

    def shown_early(self) -> str | None:
        return None

    def _feed(self) -> SinkInput:
        if self._rows is None:
            raise RuntimeError(
                f"{type(self).__name__}: it learns its columns from collection.write(name, table)"
            )
        return self._rows

    def _key(self) -> RowKey:
        key = self._feed().key
        assert key is not None
        return key
