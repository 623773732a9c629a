"""Distinguishes queries from names of tables."""

from __future__ import annotations

import re


def is_query(text: str) -> bool:
    """True if the text is a query, rather than the name of a table."""
    return re.match(r"\s*(select|with)\b", text, re.IGNORECASE) is not None
