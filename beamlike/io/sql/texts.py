"""SQL column types for text and bytes. Their length is limited only in keys."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine

LONGEST: Final = 255
"""The greatest number of characters of text in a key, for databases that cannot index longer text."""

MYSQL: Final = ("mysql", "mariadb")

_NO_PAD_SINCE: Final = (8, 0, 17)
"""The first version of MySQL with a collation that distinguishes `a`, `a ` and `A`."""


class _Exact(mysql.VARCHAR):
    """Text that is compared exactly.

    By default, MySQL may store only Western European letters, and treats `A` and `a ` as equal to `a`.
    """


@compiles(_Exact, *MYSQL)
def _exact(kind: _Exact, compiler: Any, **options: Any) -> str:
    dialect = compiler.dialect
    if dialect.is_mariadb:
        collation = "utf8mb4_nopad_bin"
    else:
        # In earlier versions, no collation distinguishes texts that differ only in trailing blanks.
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
