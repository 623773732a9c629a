"""Names of tables, and queries in their place."""

from __future__ import annotations

import re


def is_query(text: str) -> bool:
    """Whether it is a query, and no name of a table."""
    return re.match(r"\s*(select|with)\b", text, re.IGNORECASE) is not None
