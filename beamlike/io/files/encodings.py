"""Reads and writes text in other encodings than UTF-8, and finds bytes that are not text."""

from __future__ import annotations

import codecs
import functools
import re
from encodings.aliases import aliases
from typing import BinaryIO, Final

import polars as pl

from beamlike.errors import nearest
from beamlike.io.files.paths import open_file
from beamlike.io.files.unpacking import Damaged, require_not_packed

UTF8: Final = "utf-8"
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8
_KEPT: Final = "beamlike.kept"
_ASCII: Final = 'a,"\n'
_CONTROLS: Final = re.compile(rb"[\x80-\x9f]")  # control codes in Latin-1, printable characters in cp1252


def require_encoding(name: object, whose: str) -> None:
    """Raises `ValueError` if the name is not a text encoding."""
    try:
        known = isinstance(name, str) and _ASCII.encode(name).decode(name) == _ASCII
    except (LookupError, ValueError):
        known = False
    if not known:
        near = nearest(name, [alias.replace("_", "-") for alias in (*aliases, *aliases.values())])
        expected = "'utf-8', 'latin-1', 'cp1252' or another that Python knows"
        raise ValueError(f"{whose}: encoding must be {expected}, not {name!r}{near}")


@functools.cache
def is_utf8(encoding: str) -> bool:
    """True if files in the encoding can be read without conversion."""
    return codecs.lookup(encoding).name == UTF8


def open_text(file: str, encoding: str) -> BinaryIO:
    """Opens a file as UTF-8 bytes. Bytes that are invalid in `encoding` become invalid UTF-8.

    Reading raises `Damaged` if the file cannot be decoded at all, such as UTF-16 without a byte order mark, or is a
    compressed one.
    """
    handle = open_file(file)
    return handle if is_utf8(encoding) else _Recoded(handle, encoding)  # type: ignore[return-value]


def no_text(line: bytes, encoding: str = UTF8) -> str | None:
    """Returns the reason why a line is not valid text; None if it is. The line must be from `open_text`."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        name = "UTF-8" if is_utf8(encoding) else encoding
        return f"not {name}: it has the byte {line[error.start]:#04x}"
    return None


def looks_like(line: bytes) -> str | None:
    """Returns the likely encoding of a line that is not UTF-8; None if it is UTF-8 with a few invalid bytes."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if not line.decode(errors="ignore").isascii():
        return None
    return "cp1252" if _CONTROLS.search(line) else "latin-1"


def recoded(content: bytes, encoding: str, values: pl.DataFrame) -> bytes:
    """Converts UTF-8 text to another encoding. `values` are the values in the text, for the error.

    Raises `ValueError` for a character that the encoding lacks.
    """
    try:
        return content.decode().encode(encoding)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        texts = values.cast(pl.String)
        having = (column.name for column in texts if column.str.contains(character, literal=True).any())
        where = next((f"column {name!r}" for name in having), "the header")
        raise ValueError(
            f"{where} has {character!r}, which {encoding} cannot encode; choose another encoding="
        ) from None


class _Recoded:
    """A file in another encoding, read as UTF-8 bytes."""

    def __init__(self, handle: BinaryIO, encoding: str) -> None:
        self._handle = handle
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(_KEPT)
        self._is_first = True

    def __enter__(self) -> _Recoded:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def read(self, size: int) -> bytes:
        """Reads about `size` bytes of the file, and returns them as UTF-8. Returns no bytes at the end.

        Raises `Damaged` as `open_text` says.
        """
        text, data = b"", b"-"
        while data and not text:
            data = self._handle.read(size)
            if self._is_first:  # the marks of compressed files are lost when the bytes are decoded
                require_not_packed(data)
                self._is_first = False
            text = self._recoded(data)
        return text

    def _recoded(self, data: bytes) -> bytes:
        try:
            return self._decoder.decode(data, final=not data).encode(UTF8, "surrogateescape")
        except UnicodeError as error:
            raise Damaged(f"it cannot be read as {self._encoding}: {error}") from None


def _kept(error: UnicodeError) -> tuple[str, int]:
    """Handles a decoding error: maps invalid bytes to surrogates, like `surrogateescape`, but also ASCII bytes."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(chr(0xDC80 | byte) for byte in wrong), error.end


codecs.register_error(_KEPT, _kept)
