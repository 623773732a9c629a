"""Column types for text and bytes, of any length unless they are in a key."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine

LONGEST: Final = 255
"""How many characters text in a key has at most, where a database has no index for longer ones."""

MYSQL: Final = ("mysql", "mariadb")

_NO_PAD_SINCE: Final = (8, 0, 17)
"""Of MySQL: the version that has a collation which tells `a` from `a ` and `A`."""


class _Exact(mysql.VARCHAR):
    """Text that is compared exactly.

    By default MySQL may store Western European letters only, and treats `A` and `a ` as equal to `a`.
    """


@compiles(_Exact, *MYSQL)
def _exact(kind: _Exact, compiler: Any, **options: Any) -> str:
    dialect = compiler.dialect
    if dialect.is_mariadb:
        collation = "utf8mb4_nopad_bin"
    else:
        # Of earlier versions no collation tells apart what differs in blanks at the end.
        version = dialect.server_version_info or _NO_PAD_SINCE
        collation = "utf8mb4_0900_bin" if version >= _NO_PAD_SINCE else "utf8mb4_bin"
    return f"VARCHAR({kind.length}) CHARACTER SET utf8mb4 COLLATE {collation}"


def text() -> TypeEngine[Any]:
    """Returns the type for text of any length."""
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def key_text() -> TypeEngine[Any]:
    """Returns the type for text that can be in an index."""
    short = sa.Text().with_variant(sa.String(LONGEST), "mssql", "oracle")
    return short.with_variant(_Exact(LONGEST), *MYSQL)


def name_text() -> TypeEngine[Any]:
    """Returns the type for text of at most `LONGEST` characters."""
    return sa.String(LONGEST).with_variant(_Exact(LONGEST), *MYSQL)


def binary() -> TypeEngine[Any]:
    """Returns the type for bytes of any length."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
