"""Distinguishes SQL queries from names of tables."""

from __future__ import annotations

import re


def is_query(text: str) -> bool:
    """True if the text is a query, and not the name of a table."""
    return re.match(r"\s*(select|with)\b", text, re.IGNORECASE) is not None
