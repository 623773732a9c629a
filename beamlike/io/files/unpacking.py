"""Unpacks compressed files, up to the first damaged byte. The name of a file decides whether it is compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from typing import BinaryIO, Final

_CODECS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_STEP: Final = 16 << 10  # bytes
_TEXTS: Final = (b"\x1f\x8b", b"x\x01", b"x^", b"x\x9c", b"x\xda", b"(\xb5/\xfd")
"""The first bytes by which polars recognizes gzip, zlib and zstd. Text can begin with the second and the third."""
_NO_TEXTS: Final = {b"\x1f\x8b": "gzip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"PK\x03\x04": "zip"}

Open = Callable[[str | None], BinaryIO]
"""Opens the file that is read. With the name of a codec, pyarrow unpacks it."""


class Damaged(Exception):
    """The error for a file that cannot be read from some byte on. The bytes before were read."""


def codec_of(path: str) -> str | None:
    """Returns the compression that the end of a name stands for; None if there is none."""
    return next((codec for end, codec in _CODECS.items() if path.lower().endswith(end)), None)


def not_packed(text: bytes, before: bytes) -> bytes:
    """Returns text that polars does not take for compressed bytes, if needed with `before` in front, which it skips."""
    return before + text if text.startswith(_TEXTS) else text


def require_not_packed(first: bytes) -> None:
    """Raises `Damaged` if the first bytes of a file are those of a compressed one, which its name does not say."""
    for mark, codec in _NO_TEXTS.items():
        if first.startswith(mark):
            ends = [end for end, one in _CODECS.items() if one == codec]
            advice = f"give it a name that ends in {ends[0]}" if ends else "unpack it"
            raise Damaged(f"it is compressed with {codec}, and its name does not say so; {advice}")


class Unpacked:
    """A compressed file, which can be read up to its first damaged byte."""

    def __init__(self, codec: str, opens: Open) -> None:
        self._parts = _gunzipped(opens) if codec == "gzip" else _unpacked(codec, opens)
        self._read = 0
        self._damaged: Damaged | None = None

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._parts.close()

    def read(self, size: int) -> bytes:
        """Reads about `size` bytes. Returns no bytes at the end of the file.

        Raises `Damaged` after the last bytes that can be unpacked.
        """
        parts: list[bytes] = []
        try:
            while size > 0 and (part := next(self._parts, b"")):
                parts.append(part)
                size -= len(part)
                self._read += len(part)
        except Damaged as error:
            self._damaged = Damaged(f"it cannot be unpacked beyond byte {self._read}: {error}")
        if self._damaged is not None and not parts:
            raise self._damaged
        return b"".join(parts)


def _gunzipped(opens: Open) -> Generator[bytes]:
    """Yields the bytes in the members of a gzip file. Zero bytes after a member are padding, as for `gzip -d`."""
    read, member, first = b"", None, True
    with opens(None) as packed:
        while read := read or packed.read(_STEP):
            if member is None:
                read = read if first else read.lstrip(b"\0")
                member, first = zlib.decompressobj(wbits=31) if read else None, False
                continue
            before = member.copy()
            try:
                part = member.decompress(read)
            except zlib.error as error:
                yield from _up_to_damage(before, read)
                raise Damaged(str(error)) from None
            if part:
                yield part
            read, member = (member.unused_data, None) if member.eof else (b"", member)
        if member is not None:
            raise Damaged("it was cut there, or is not complete yet")


def _up_to_damage(member: zlib._Decompress, read: bytes) -> Generator[bytes]:
    """Yields the bytes before the damage, by unpacking single bytes."""
    for at in range(len(read)):
        try:
            part = member.decompress(read[at : at + 1])
        except zlib.error:
            return
        if part:
            yield part


def _unpacked(codec: str, opens: Open) -> Generator[bytes]:
    """Yields what pyarrow unpacks, at the end byte by byte, as pyarrow returns nothing of a read that fails."""
    done, step = 0, _STEP
    while True:
        try:
            with opens(codec) as stream:
                for _ in range(0, done, _STEP):
                    stream.read(_STEP)
                while part := stream.read(step):
                    yield part
                    done += len(part)
            return
        except OSError as error:
            with opens(
                None
            ) as packed:  # raises the error of the storage if even the compressed bytes cannot be read
                while packed.read(_STEP):
                    pass
            if step == 1:
                raise Damaged(str(error)) from None
            step = 1
