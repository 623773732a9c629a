"""The ledger of a database: which batch of a run each task of a sink has written last to which table.

It is written in the transaction that writes the rows, so a batch that comes again is known.
"""

from __future__ import annotations

import hashlib
from typing import Final

import sqlalchemy as sa

from beamlike.io.base import Part
from beamlike.io.sinks import overtaken
from beamlike.io.sql.texts import LONGEST, name_text

LEDGER: Final = "beamlike_ledger"
FORMER: Final = "beamlike_batches"
"""The ledger of earlier versions, which knew a run's tables and not its sinks."""

_ANY: Final = ""
"""As the name of a sink: whatever sink and task wrote to the table, as the former ledger has it."""


def ledger_of(table: sa.Table) -> sa.Table:
    """The ledger beside a table."""
    name = name_text()
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        *(sa.Column(column, name, primary_key=True) for column in ("run", "sink", "target")),
        sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        schema=table.schema,
    )


def prepare(connection: sa.Connection, table: sa.Table) -> None:
    """Makes the ledger if it is not there; what a former one says is carried over, and that one removed."""
    ledger = ledger_of(table)
    ledger.create(connection, checkfirst=True)
    if not sa.inspect(connection).has_table(FORMER, schema=table.schema):
        return
    former = sa.Table(
        FORMER,
        sa.MetaData(),
        *(sa.Column(column, name_text()) for column in ("run", "target")),
        sa.Column("batch", sa.BigInteger),
        schema=table.schema,
    )
    carried = sa.select(former.c.run, sa.literal(_ANY), former.c.target, sa.literal(0), former.c.batch)
    connection.execute(ledger.insert().from_select(["run", "sink", "target", "task", "batch"], carried))
    former.drop(connection)


def claim(connection: sa.Connection, table: sa.Table, part: Part, *, replaces: bool) -> bool:
    """Whether this transaction is to write the part; the ledger says from then on that it has.

    The last batch is written again if that `replaces` what is there. Of two attempts at once, the database lets one
    wait. Raises `RuntimeError` for a batch before the last one: the attempt at it should be dead, or the run is one of
    two on copies of a checkpoint.
    """
    ledger = ledger_of(table)
    run, target = _fitting(part.query), _fitting(table.name)
    mine = (ledger.c.run == run) & (ledger.c.target == target)
    own = mine & (ledger.c.sink == _fitting(part.sink)) & (ledger.c.task == part.task)
    due = ledger.c.batch <= part.batch if replaces else ledger.c.batch < part.batch
    noted = connection.execute(ledger.update().where(own & due).values(batch=part.batch))
    if noted.rowcount:
        return True
    before = mine & (ledger.c.sink == _ANY) & ~due
    latest = connection.scalar(sa.select(sa.func.max(ledger.c.batch)).where(own | before))
    if latest is not None and latest > part.batch:
        raise overtaken(part.batch, latest)
    if latest is not None:
        return False
    new = {"run": run, "sink": _fitting(part.sink), "target": target, "task": part.task, "batch": part.batch}
    try:
        with connection.begin_nested():
            connection.execute(ledger.insert().values(new))
    except sa.exc.IntegrityError:  # another attempt was quicker
        return False
    return True


def latest_batch(connection: sa.Connection, table: sa.Table, run: str) -> int | None:
    """The last batch of the run that is in the table, whichever sink and task wrote it; None if there is none."""
    ledger = ledger_of(table)
    mine = (ledger.c.run == _fitting(run)) & (ledger.c.target == _fitting(table.name))
    found: int | None = connection.scalar(sa.select(sa.func.max(ledger.c.batch)).where(mine))
    return found


def forget(connection: sa.Connection, table: sa.Table, run: str) -> None:
    """The run of this name begins anew: none of its batches has been written to the table."""
    ledger = ledger_of(table)
    mine = (ledger.c.run == _fitting(run)) & (ledger.c.target == _fitting(table.name))
    connection.execute(ledger.delete().where(mine))


def _fitting(name: str) -> str:
    """The name, or if it is too long its beginning and a digest of it."""
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name[: LONGEST - len(digest) - 1]}~{digest}"
