"""Parameters of a file in a query. They replace tokens, so that a value cannot change the query around it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import attrs
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from beamlike.expressions.grammar import as_text
from beamlike.spec.document import Item
from beamlike.spec.parameters import Parameters

_PARAMETER: Final = re.compile(r"\$\{(\w*)\}")


@attrs.frozen
class QueryParameters:
    """The parameters of the file, and the item of the query for errors."""

    parameters: Parameters
    item: Item

    def tokens(self, tokens: Sequence[Token], query: str) -> Iterator[Token]:
        """Yields the tokens of a query, with literals for parameters. In a text in quotes, a parameter is text."""
        end = -1
        for token in tokens:
            if token.start < end:
                continue
            found = _PARAMETER.match(query, token.start)
            if found:
                end = found.end()
                yield from self._literal(self.parameters.named(found[1], self.item), found[1], token)
            elif token.token_type is TokenType.STRING:
                yield _like(token, TokenType.STRING, self.parameters.in_text(token.text, self.item))
            else:
                yield token

    def _literal(self, value: Any, name: str, token: Token) -> Iterator[Token]:
        for kind, text in self._parts(value, name):
            yield _like(token, kind, text)

    def _parts(self, value: Any, name: str) -> list[tuple[TokenType, str]]:
        """Returns the types and texts of the tokens of a literal."""
        match value:
            case None:
                return [(TokenType.NULL, "NULL")]
            case bool():
                return [(TokenType.TRUE, "TRUE") if value else (TokenType.FALSE, "FALSE")]
            case int() | float() if math.isfinite(value):
                number = [(TokenType.NUMBER, f"{abs(value)}")]
                negative = [
                    (TokenType.L_PAREN, "("),
                    (TokenType.DASH, "-"),
                    *number,
                    (TokenType.R_PAREN, ")"),
                ]
                return negative if value < 0 else number
            case float():
                raise self.item.fault(f"the parameter {name!r} is {value}, which a query cannot have")
            case datetime():
                kind = TokenType.TIMESTAMP if value.tzinfo is None else TokenType.TIMESTAMPTZ
                return [(kind, kind.name), (TokenType.STRING, as_text(value))]
            case date():
                return [(TokenType.DATE, "DATE"), (TokenType.STRING, as_text(value))]
            case timedelta():
                return [(TokenType.INTERVAL, "INTERVAL"), (TokenType.STRING, as_text(value))]
        return [(TokenType.STRING, as_text(value))]


def _like(token: Token, kind: TokenType, text: str) -> Token:
    """Returns a token with another type and text, and the same place."""
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)
