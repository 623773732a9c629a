"""Text from data as a terminal may have it: what would move its cursor, colour it or turn it is shown escaped."""

from __future__ import annotations

import logging
import re
from typing import Final

# Control characters, ends of lines, marks that change the direction of text, halves of characters.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""The text with such characters as Python writes them, `\x1b`; those of `keep` stay as they are.

    >>> printable("ada\x1b[2J")
    'ada\\x1b[2J'
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Escaping(logging.Filter):
    """Makes what is logged printable; a message may have several lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets every record pass."""
        record.msg, record.args = printable(record.getMessage(), keep="\n\t"), ()
        return True


# What is logged has values and names of files from data in it.
logging.getLogger("beamlike").addFilter(Escaping())
