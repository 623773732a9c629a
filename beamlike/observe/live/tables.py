"""Reads rows of tables on this machine: of SQLite, and of Delta."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from beamlike.system.texts import sql_name

_STEPS: Final = 1_000_000
"""The instructions of SQLite after which a query ends: the file of another may contain a view without an end."""


def newest_of_table(file: str, table: str, count: int) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Returns the columns and the rows of a table of SQLite that were inserted last. The database is only read.

    Raises `sqlite3.Error` if it cannot be read, or if reading takes long.
    """
    schema, _, name = table.rpartition(".") if not table.startswith('"') else ("", "", table.strip('"'))
    shown = ".".join(sql_name(part) for part in (schema, name) if part)
    address = f"{Path(file).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=1)) as database:
        database.text_factory = lambda text: text.decode(errors="replace")
        database.execute("PRAGMA trusted_schema=OFF")
        database.set_progress_handler(lambda: 1, _STEPS)
        rows = database.execute(f"SELECT * FROM {shown} ORDER BY rowid DESC LIMIT ?", (count,))
        return [column for column, *_ in rows.description], rows.fetchall()


def delta_files(folder: str) -> list[Path]:
    """Returns the files of the newest version of a Delta table.

    Raises an `OSError` or `ValueError` if it cannot be read, and `ModuleNotFoundError` without deltalake.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        added: Any = DeltaTable(folder).get_add_actions(flatten=True)
        return [Path(folder, unquote(path.as_py())) for path in added["path"]]
    except DeltaError as error:
        raise ValueError(str(error)) from error
