"""Logs as lines of JSON, for log collectors."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from beamlike.system.activity import current_tracker
from beamlike.system.secrets import without_secrets


class JsonLines(logging.Formatter):
    """A formatter that writes each message as one JSON object on one line.

    Its keys are `time` (UTC), `level`, `logger` and `message`; `run` and `batch` if the message is about a run; and
    `exception`, with the traceback, if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **_run(),
        }
        if record.exc_info:
            found["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(found, ensure_ascii=False, default=str)


def _run() -> dict[str, Any]:
    """Returns the run and batch of the current thread, as far as they are known."""
    tracker = current_tracker()
    if tracker is None or not tracker.run:
        return {}
    batch = {} if tracker.begun is None else {"batch": tracker.begun.batch}
    return {"run": tracker.run, **batch}


def log_json(stream: TextIO | None = None) -> None:
    """Writes the log of this process, with Python's warnings, as lines of JSON; by default to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("beamlike").setLevel(logging.INFO)
    logging.captureWarnings(True)


def logs_json() -> bool:
    """True if the log of this process is written as lines of JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)
