"""Parses SQL by sqlglot, with the clauses of streams: window functions of tables, and EMIT."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import Dialect, exp, parser
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType  # type: ignore[attr-defined]

from beamlike.errors import BadQuery
from beamlike.expressions.grammar import DEEPEST, LONGEST, TOO_DEEP, TOO_LONG, levels
from beamlike.spec.sql_advice import at_fault, no_query, unclosed
from beamlike.spec.sql_parameters import QueryParameters

_WINDOWS: Final = ("SESSION", "WINDOW")
"""Names of functions that are keywords in SQL."""
_EMIT: Final = TokenType.PREWHERE
"""A type of token that no other clause here has, used for EMIT."""


class _Parser(parser.Parser):
    QUERY_MODIFIER_PARSERS = {  # noqa: RUF012  sqlglot's own declaration
        **parser.Parser.QUERY_MODIFIER_PARSERS,
        _EMIT: lambda self: ("prewhere", self._parse_emit()),
    }

    def _parse_emit(self) -> exp.Expr:
        """Parses `EMIT [EARLY ...] [LATE ...] [EVERY ...] [WITH LATENESS ...] [ACCUMULATING]` to a tuple of pairs."""
        self._advance()
        parts: list[Any] = []
        while self._curr is not None and self._curr.text.upper() in (*_TRIGGERS, *_ACCUMULATION, "WITH"):
            word = self._curr.text.upper()
            if word in _ACCUMULATION:
                self._advance()
                parts.append(exp.Tuple(expressions=[exp.Var(this="ACCUMULATION"), exp.Var(this=word)]))
            elif word == "WITH":
                self._advance()
                if not self._match_text_seq("LATENESS"):
                    self.raise_error("expected LATENESS after WITH")
                parts.append(exp.Tuple(expressions=[exp.Var(this="LATENESS"), self._parse_interval()]))
            else:
                if word != "EVERY":
                    self._advance()
                parts.append(exp.Tuple(expressions=[exp.Var(this=word), self._parse_every()]))
        if not parts:
            self.raise_error("expected EARLY, LATE, EVERY, WITH LATENESS or ACCUMULATING after EMIT")
        return exp.Tuple(expressions=parts)

    def _parse_every(self) -> Any:
        if not (self._match_text_seq("EVERY") or self._match_text_seq("AFTER")):
            self.raise_error("expected EVERY n ROWS or AFTER INTERVAL")
        interval = self._parse_interval()
        if interval is not None:
            return interval
        number = self._parse_number()
        if number is None or not (self._match_text_seq("ROWS") or self._match_text_seq("ROW")):
            self.raise_error("expected a number of ROWS, or an INTERVAL")
        return number


_TRIGGERS: Final = ("EARLY", "LATE", "EVERY")
_ACCUMULATION: Final = ("ACCUMULATING", "DISCARDING", "RETRACTING")


class _Dialect(Dialect):
    Parser = _Parser
    tokenizer_class = Tokenizer


def parse(query: str, parameters: QueryParameters | None = None) -> exp.Query:
    """Parses a query, with the values of parameters. Raises `BadQuery` with the place of a fault."""
    dialect = _Dialect()
    if len(query) > LONGEST:
        raise BadQuery(f"line 1, column 1: {TOO_LONG}")
    try:
        given = dialect.tokenize(query)
    except TokenError as error:
        start, reason = unclosed(query)
        raise BadQuery(f"{place_of(query, start)}: {reason}") from error
    tokens = _prepared(given if parameters is None else [*parameters.tokens(given, query)])
    try:
        found = [one for one in _Parser(dialect=dialect).parse(tokens, query) if one is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        token, reason = at_fault(
            tokens, first.get("line") or 1, first.get("col") or 1, str(first.get("description") or error)
        )
        raise BadQuery(f"{place_of(query, token.start if token else 0)}: {reason}") from error
    except RecursionError:
        raise BadQuery(f"line 1, column 1: {TOO_DEEP}") from None
    if any(levels(one, exp.Expression.iter_expressions) > DEEPEST for one in found):
        raise BadQuery(f"line 1, column 1: {TOO_DEEP}")
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise BadQuery(f"line 1, column 1: {no_query(tokens)}")
    return found[0]


def place_of(query: str, start: int) -> str:
    """Returns the place of a position in a query, in words."""
    before = query[:start]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _prepared(tokens: list[Token]) -> list[Token]:
    """Returns the tokens with the functions of tables as functions: without TABLE, and with names for keywords."""
    made: list[Token] = []
    closing: list[bool] = []
    skipped = False
    for number, token in enumerate(tokens):
        after = tokens[number + 1].token_type if number + 1 < len(tokens) else None
        word = token.text.upper()
        if word == "TABLE" and token.token_type is TokenType.TABLE and made:
            skipped = after is TokenType.L_PAREN
            if skipped or made[-1].token_type in (TokenType.L_PAREN, TokenType.COMMA, TokenType.FARROW):
                continue
        if token.token_type is TokenType.L_PAREN:
            closing.append(skipped)
            if skipped:
                skipped = False
                continue
        if token.token_type is TokenType.R_PAREN and closing and closing.pop():
            continue
        if word in _WINDOWS and after is TokenType.L_PAREN and token.token_type is not TokenType.IDENTIFIER:
            token = _typed(token, TokenType.VAR)
        if word == "EMIT" and token.token_type is TokenType.VAR:
            token = _typed(token, _EMIT)
        made.append(token)
    return made


def _typed(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end, token.comments)
