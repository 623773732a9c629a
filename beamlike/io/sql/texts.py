"""Types of columns for text and bytes, of any length unless they are in a key."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

LONGEST: Final = 255
"""How many characters text in a key has at most, where a database has no index for longer ones."""

MYSQL: Final = ("mysql", "mariadb")

# By default these may have no other letters than those of Western Europe, and take `A` for `a`.
_EXACT: Final[Any] = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}


def text() -> TypeEngine[Any]:
    """Of any length."""
    return sa.Text().with_variant(mysql.LONGTEXT(**_EXACT), *MYSQL)


def key_text() -> TypeEngine[Any]:
    """That can be in an index."""
    short = sa.Text().with_variant(sa.String(LONGEST), "mssql", "oracle")
    return short.with_variant(mysql.VARCHAR(LONGEST, **_EXACT), *MYSQL)


def name_text() -> TypeEngine[Any]:
    """Of at most `LONGEST` characters."""
    return sa.String(LONGEST).with_variant(mysql.VARCHAR(LONGEST, **_EXACT), *MYSQL)


def binary() -> TypeEngine[Any]:
    """Bytes of any length."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
