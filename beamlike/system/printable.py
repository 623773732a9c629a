"""Makes text from data safe for a terminal: escapes characters that move the cursor, or change colours or direction."""

from __future__ import annotations

import logging
import re
from typing import Final

# Control characters, line ends, marks that change the direction of text, halves of surrogate pairs.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""Returns the text with control characters escaped, as Python writes them: `\x1b`. Those in `keep` are not.

    >>> printable("ada\x1b[2J")
    'ada\\x1b[2J'
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Escaping(logging.Filter):
    """A logging filter that makes messages printable. A message may have several lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Changes the record, and lets it pass."""
        record.msg, record.args = printable(record.getMessage(), keep="\n\t"), ()
        return True


# Log messages contain values and file names from data.
logging.getLogger("beamlike").addFilter(Escaping())
