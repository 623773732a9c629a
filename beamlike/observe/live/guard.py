"""Guards the pages: who may read them, and what a browser may load for them."""

from __future__ import annotations

import re
import secrets
from typing import Final

import attrs
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_OWN_NAME: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
"""The header Host of a request by a name of this machine. It is compared as it was sent, because parsers of URLs cut
names at some characters.
"""


@attrs.frozen
class Access:
    """The readers of the pages: with a `token`, its holders; without one, requests to this machine by its own names."""

    token: str = ""

    @classmethod
    def of(cls, host: str) -> Access:
        """Returns the access for a server at this address: with a new token unless only this machine reaches it."""
        return cls() if host in LOOPBACK else cls(secrets.token_urlsafe(24))

    def refusal(self, request: Request, cookie: str) -> Response | None:
        """Returns the answer to a request that may not be served; None for others."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("the pages can only be read", 405)
        if not self.token:
            # Another site whose name points to this machine must not read the pages through the user's browser.
            if [*map(bool, map(_OWN_NAME.fullmatch, request.headers.getlist("host")))] != [True]:
                return PlainTextResponse("open the page as http://localhost", 403)
            return None
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        if not self._is_token(request.query_params.get("token", "")):
            return PlainTextResponse("open the address that `beamlike ui` has printed, with its token", 401)
        # The token leaves the address, so that it is in no history and no link.
        answer = RedirectResponse(str(request.url.remove_query_params("token")), 303)
        answer.set_cookie(cookie, self.token, httponly=True, samesite="strict")
        return answer

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(errors="surrogatepass"), self.token.encode())


class Guard:
    """Refuses requests that may not be served, and adds headers that keep foreign code out of the pages."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        refused = self.access.refusal(request, f"beamlike-{request.url.port or 80}")
        await (refused or self.app)(scope, receive, guarded)
