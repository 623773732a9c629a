"""The policy for services that are briefly unwell: which errors may pass, and how often and when a call is repeated."""

from __future__ import annotations

import errno
import logging
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from beamlike.errors import text_of
from beamlike.system.activity import current_tracker
from beamlike.system.secrets import without_secrets

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

TRIES: Final = 10
"""The greatest number of calls of a service that has answered before."""

FEW: Final = 4
"""The greatest number of calls before a service has answered once, as its address may be wrong."""

_FIRST: Final = 0.1
"""The upper bound of the first wait, in seconds. It doubles with each wait, up to `_LONGEST`."""
_LONGEST: Final = 5.0
_MOST: Final = 60.0
"""The seconds after which a call is not repeated any more."""

_LOG: Final = logging.getLogger("beamlike")

_NUMBERS: Final = frozenset(
    getattr(errno, name)
    for name in (
        *(
            "ECONNABORTED",
            "ECONNREFUSED",
            "ECONNRESET",
            "EHOSTUNREACH",
            "ENETDOWN",
            "ENETRESET",
            "ENETUNREACH",
        ),
        *("EPIPE", "ETIMEDOUT", "ESTALE"),
    )
    if hasattr(errno, name)
)
_NAMES: Final = frozenset(
    (
        *("OperationalError", "InterfaceError", "InternalError"),  # of databases
        *(
            "ConnectionError",
            "TimeoutError",
            "BusyLoadingError",
            "TryAgainError",
        ),  # of Redis, requests and others
        *(
            "CommitFailedError",
            "ServiceUnavailableError",
            "EndpointConnectionError",
            "CommitStateUnknownException",
        ),
    )
)
_OURS: Final = ("beamlike.", "stages.", "windowing.")
_LIBRARIES: Final = (
    "polars",
    "pyarrow",
    "deltalake",
    "_internal",
    "pyiceberg",
    "botocore",
    "adbc_driver_manager",
)
"""The beginnings of modules whose errors say only in words what failed."""

_PASSING: Final = re.compile(
    r"(?i)slow_?down|service.?unavailable|internal_failure|internal.?(?:server.)?error|network_connection"
    r"|request_?time|throttl|too many requests|reduce your request rate|bad gateway|gateway time"
    r"|(?:status|code|error)[^\w]{1,4}(?:429|50[0234])\b|curlcode|timed.?out|connection (?:reset|refused|closed|abort)"
    r"|transport failure|brokers? .*down|connection error|error sending request|broken pipe|incomplete message"
    r"|end of file before|temporar|try again"
)
_OF_STORE: Final = re.compile(r"(?i)(?:object-store error: )?(?:generic \w+ error|error performing)")
"""The beginning of polars' errors of object stores. Its other errors are about rows, and quote them."""
_LASTING: Final = re.compile(r"(?i)access.?denied|forbidden|invalid.?access.?key|signature.?does|no.?such")
_WRONG: Final = re.compile(
    r"(?i)no.?such|not exist|syntax|authentication|password|read.?only|unable to open|unknown|permission|malformed|full"
    r"|denied|pg_hba|\bcolumns?\b|default value|constraint|out of range|too long|data truncated"
)
"""Words of databases for what stays as it is, also if they raise the class of errors of connections."""
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
"""Names in an error, such as those of hosts and databases."""


def may_pass(error: BaseException) -> bool:
    """True for an error of a network or a service that may be gone a moment later. Errors of a user's function are
    those of the user.
    """
    return any(_may_pass(one) for one in _causes(error)) and not any(
        note.startswith(("in ", "after ")) for one in _causes(error) for note in getattr(one, "__notes__", ())
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that it was raised for: for errors of this package, also if the message hides them."""
    met = set[int]()  # errors that are raised for each other form a circle
    while error is not None and id(error) not in met:
        met.add(id(error))
        yield error
        ours = type(error).__module__.startswith(_OURS)
        error = error.__cause__ or (error.__context__ if ours else None)


def _may_pass(error: BaseException) -> bool:
    """Judges one error. Values of rows, which errors of databases and of polars may quote, do not decide it."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    text = _words(error)
    if any(kind.__name__ in _NAMES for kind in type(error).__mro__) and not _is_of_rights(error):
        return _WRONG.search(_QUOTED.sub("", text)) is None
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NUMBERS
    library = type(error).__module__
    if library.startswith("polars") and not _OF_STORE.match(text):
        return False
    if not isinstance(error, OSError) and (
        isinstance(error, ValueError) or not library.startswith(_LIBRARIES)
    ):
        return False
    return _PASSING.search(text) is not None and _LASTING.search(text) is None


def _words(error: BaseException) -> str:
    """Returns the text of an error: of SQLAlchemy's, without the statement and its parameters; of MySQL's, without the
    number.
    """
    own = getattr(error, "orig", None) or error
    args: tuple[Any, ...] = getattr(own, "args", ())
    return text_of(args[1] if len(args) == 2 and isinstance(args[0], int) else own)


def _is_of_rights(error: BaseException) -> bool:
    """True for errors of a user or a password, which Redis and others derive from those of connections."""
    return any(kind.__name__.startswith(("Authenti", "Authoriz")) for kind in type(error).__mro__)


def again(what: str, call: Callable[[], T], tries: int = TRIES) -> T:
    """Calls a function, and repeats the call after errors that may pass, with random waits that become longer. Each
    repetition is logged and counted. `what` names the target, and the call must be safe to repeat.
    """
    try:
        return call()
    except Exception as error:
        if not may_pass(error):
            raise
        first = error
    # No error is handled any more: a later one would seem to be raised for this one.
    return _repeated(what, call, first, tries)


def _repeated(what: str, call: Callable[[], T], first: Exception, tries: int) -> T:
    from tenacity import (
        Retrying,
        retry_if_exception,
        stop_after_attempt,
        stop_after_delay,
        wait_random_exponential,
    )

    failed = iter([first])

    def tried() -> T:
        for error in failed:
            raise error  # the call that was made already
        return call()

    repeated = Retrying(
        stop=stop_after_attempt(tries) | stop_after_delay(_MOST),
        wait=wait_random_exponential(multiplier=_FIRST, max=_LONGEST),
        retry=retry_if_exception(may_pass),
        before_sleep=partial(_tell, what, tries),
        reraise=True,
    )
    try:
        return repeated(tried)
    except Exception as error:
        if may_pass(error):
            # With this note, no surrounding call is repeated, too.
            error.add_note(f"after {repeated.statistics['attempt_number']} attempts at: {what}")
        raise


def _tell(what: str, tries: int, state: RetryCallState) -> None:
    error: Any = None if state.outcome is None else state.outcome.exception()
    reason = without_secrets(" ".join(text_of(error).split()))[:300]
    wait = 0.0 if state.next_action is None else state.next_action.sleep
    _LOG.warning(
        "%s: %s: %s; trying again in %.1fs, attempt %d of %d",
        what,
        type(error).__name__,
        reason,
        wait,
        state.attempt_number + 1,
        tries,
    )
    if (tracker := current_tracker()) is not None:
        tracker.retried()
