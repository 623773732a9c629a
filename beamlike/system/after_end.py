"""The text by which records mark input that arrived after the end of its source."""

from __future__ import annotations

from typing import Final

AFTER_END: Final = "after the end"
"""The beginning of the kind of change of such input. Other kinds are changes of files that were read."""
