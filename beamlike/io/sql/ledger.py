"""The ledger: a table in the user's database with the last batch that each task of a sink has written to each table.

It is updated in the transaction that writes the rows, so a repeated batch is detected.
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
"""The ledger of earlier versions. It had the table of each batch, but not the sink."""

_ANY: Final = ""
"""The sink name in entries from the former ledger. They are valid for any sink and task."""


def ledger_of(table: sa.Table) -> sa.Table:
    """Returns the ledger in the schema of a table."""
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
    """Creates the ledger if it does not exist, and moves entries of a former ledger to it."""
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
    """Records the part in the ledger. Returns True if this transaction must write the part.

    With `replaces`, rows replace earlier ones, so the last batch is written again. Of two concurrent attempts, one
    waits in the database. Raises `RuntimeError` for a batch before the last one: either its attempt is outdated, or two
    runs use copies of a checkpoint.
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
    except sa.exc.IntegrityError:  # another attempt was faster
        return False
    return True


def latest_batch(connection: sa.Connection, table: sa.Table, run: str) -> int | None:
    """Returns the last batch of the run in the table, from any sink and task; None if there is none."""
    ledger = ledger_of(table)
    mine = (ledger.c.run == _fitting(run)) & (ledger.c.target == _fitting(table.name))
    found: int | None = connection.scalar(sa.select(sa.func.max(ledger.c.batch)).where(mine))
    return found


def forget(connection: sa.Connection, table: sa.Table, run: str) -> None:
    """Removes the entries of earlier runs of this name from the ledger."""
    ledger = ledger_of(table)
    mine = (ledger.c.run == _fitting(run)) & (ledger.c.target == _fitting(table.name))
    connection.execute(ledger.delete().where(mine))


def _fitting(name: str) -> str:
    """Returns the name or, if it is too long for the ledger, its beginning and a digest."""
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name[: LONGEST - len(digest) - 1]}~{digest}"
