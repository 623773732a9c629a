"""Removes secrets from text that leaves the process: passwords in URLs, and values of settings that are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# A password may contain any character, even an unescaped @. So everything up to the last @ of the word is
# removed.
_IN_URL: Final = re.compile(r"(?<=://)[^\s'\"<>]*@")
_SETTING: Final = re.compile(
    r"(?i)([\w.-]*(?:passw(?:or)?d|secret|token|api[._-]?key|access[._-]?key|account[._-]?key|credential)[\w.-]*"
    r"['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&)]+"
)


def without_secrets(text: str) -> str:
    """Returns the text with `***` for users and passwords in URLs, and for the values of secret settings.

    >>> without_secrets("cannot reach postgresql://ada:s3cret@db:5432/plays with sslpassword=x")
    'cannot reach postgresql://***@db:5432/plays with sslpassword=***'
    """
    return _SETTING.sub(r"\1***", _IN_URL.sub("***@", text))


def shown_settings(settings: Mapping[str, object]) -> str:
    """Returns the `repr` of settings, with `***` for the values of secret ones.

    >>> shown_settings({"spark.hadoop.fs.s3a.secret.key": "s3c,ret", "spark.ui.enabled": "false"})
    "{'spark.hadoop.fs.s3a.secret.key': '***', 'spark.ui.enabled': 'false'}"
    """
    return repr({name: "***" if _is_secret(name) else value for name, value in settings.items()})


def _is_secret(name: str) -> bool:
    return without_secrets(f"{name}=value") != f"{name}=value"
