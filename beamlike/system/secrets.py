"""Removes secrets from text that is shown, stored or sent: passwords, keys and tokens in their usual forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Names of secret settings, also within longer names such as `spark.hadoop.fs.s3a.secret.key` and `dbPassword`.
_NAME: Final = (
    r"(?:passw(?:or)?d|pass_?phrase|passcode|passfile|pwd|secret|token(?!s|iz)|credential|cookie|jaas|oauthbearer"
    r"|(?:api|access|account|private|shared|signing|encryption|master|subscription)[ ._-]?key|user[._-]info"
    r"|connection[ ._-]?string)"
)
_TAIL: Final = r"[\w.-]{0,80}"
# Names that are too short to be looked for within others.
_SHORT: Final = r"(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[APSO])))(?:auth|authorization|pass|sig|otp|sas)|signature"
_IS: Final = r"\\*['\"]?\]?(?:\s*:\s*[\w.|\[\] ]{1,40}?(?==))?\s*(?:=>|:=|={1,3}|:|%3D|%3A)\s*"

# A quote that is not closed, as in a text that was cut, is taken to the end. SQL doubles quotes, others escape them.
_QUOTED: Final = r"b?(?P<q>\\*['\"])(?:(?!(?P=q))\\.|(?!(?P=q)).|(?P=q){2}(?!\s*[,:}\])]))*+(?:(?P=q)|\Z)"
# A quote or separator within a word belongs to the value, unless the value ends there or another setting begins.
_WORD: Final = (
    r"(?:[^\s;&'\"<>,)\]}]|[;&](?![\s'\"]|$|\w[\w.-]*=)|,(?!\s|[\w.-]+[=:]|['\"]|$)"
    r"|['\"](?![\s,;:&)\]}]|$)|[)\]}](?=\w))+"
)
_LISTED: Final = r"\[[^\]]{0,2000}\]|\((?=['\"])[^)]{0,2000}\)"
_VALUE: Final = rf"(?:(?:bearer|basic|digest|negotiate|sharedkey|token)\s+)?(?:{_LISTED}|{_QUOTED}|{_WORD})"
# After a mere space, only what no word of a sentence looks like: with a digit, a sign or capitals within.
_ODD: Final = (
    r"(?!(?:U?Int|Float)\d)(?=[^\s'\"]*(?:\d|(?-i:[a-z][A-Z]|[A-Z]{2}[a-z])|[$%^*+=/#!]\w))"
    r"[^\s'\",;]+(?<![.:)])"
)
_USER_IN_URL: Final = (
    # A password may contain any character, even an unescaped @. So everything up to the last @ of the word is removed,
    # and a space as well if a host follows.
    r"(?<=://)(?<!abfs://)(?<!abfss://)(?<!wasb://)(?<!wasbs://)"
    r"(?:[^\s'\"<>]{0,2000}@|[^\s'\"<>/:@]*:(?!\d{1,5}(?:[/?\s,;]|$))[^'\"<>\n]{0,200}?@(?=[\w\[])"
    r"|[^\s'\"<>/:@]+:[^\s\"<>/,]{0,200}@(?=[\w\[]))"
)
_NAMES: Final = (
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "cookie",
    "jaas",
    "oauth",
    "key",
    "info",
    "string",
)
_FORMS: Final = tuple(
    (hints, re.compile(form, re.IGNORECASE | re.DOTALL), shown)
    for hints, form, shown in (
        (
            ("-----begin",),
            r"(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)(?!\*\*\*).*?(?:-----END [A-Z ]*KEY(?: BLOCK)?-----|\Z)",
            r"\1***",
        ),
        (("://",), _USER_IN_URL, "***@"),
        (("://",), r"(://[\w.*@-]+:)(?![\d*{$])[^\s/'\"<>,:@]+(?=/)", r"\1***"),
        (("jdbc:",), r"(jdbc:\w{1,40}:\w{1,40}:)[^\s'\"@]{1,300}@", r"\1***@"),
        (("@",), r"(?<![\w./:@+-])[\w.+-]+:(?![/\\])[^\s'\"]{1,300}@(?=[\w\[])", "***@"),
        (
            ("hook", "/bot"),
            r"(://[^\s/'\"]*hooks?\.[^\s/'\"]*/|/webhooks?(?:b2)?/|/bot(?=\d+:))[^\s'\"<>]+",
            r"\1***",
        ),
        (("cookie",), r"(cookie:\s*)(?!['\"])[^\n]+", r"\1***"),
        (("digest",), r"(authorization\s*[:=]\s*)digest\s[^\n]+", r"\1***"),
        (("authorization",), r"(authorization\s*[:=]\s*)(?:[a-z][\w-]*[ ]+)?(?!['\"])\S+", r"\1***"),
        (_NAMES, rf"({_NAME}{_TAIL}{_IS}){_VALUE}", r"\1***"),
        (("auth", "pass", "sig", "otp", "sas"), rf"((?:{_SHORT}){_IS}){_VALUE}", r"\1***"),
        (_NAMES, rf"(<[\w.:-]*?{_NAME}{_TAIL}>|{_NAME}{_TAIL}>)[^<\s]+", r"\1***"),
        (_NAMES, rf"([\[(]['\"][\w.-]*?{_NAME}{_TAIL}['\"],\s*){_QUOTED}(?=,?\s*[\])])", r"\1***"),
        (("tokens",), rf"(\b\w*tokens{_IS})\[\s*['\"][^\]]{{0,2000}}\]", r"\1***"),
        (
            _NAMES,
            rf"(?<!unexpected )({_NAME}['\"]?\s+(?:(?:is|was|to|with|value)\s+)*)(?:{_QUOTED}|{_ODD})",
            r"\1***",
        ),
        (("bearer", "basic"), rf"(\b(?:bearer|basic)\s+)(?:{_QUOTED}|{_ODD})", r"\1***"),
        (("identified",), rf"(\bidentified\s+by\s+)(?:{_QUOTED}|\S+)", r"\1***"),
        (("-u", "--user"), r"((?:\s|^)(?:-u|--user)[ =])[^\s:]+:\S+", r"\1***"),
        (("key=", "code="), r"([?&](?:key|code)=)[^\s&'\"<>]+", r"\1***"),
        (
            (
                "eyj",
                "kia",
                "sia",
                "gh",
                "glpat-",
                "xox",
                "dapi",
                "sk-",
                "sk_",
                "aiza",
                "hf_",
                "npm_",
                "sg.",
                "ya29.",
                "dckr",
            ),
            r"\b(?-i:eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|A[KS]IA[A-Z0-9]{16}\b|gh[a-z]_\w{20,}|github_pat_\w{20,}"
            r"|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,}|dapi[0-9a-f]{32}|sk[-_](?:\w+[-_])?\w{20,}|AIza[\w-]{30,}"
            r"|hf_\w{20,}|npm_\w{20,}|SG\.[\w-]{10,}\.[\w-]{10,}|ya29\.[\w-]{10,}|dckr_pat_[\w-]{10,})",
            "***",
        ),
    )
)
"""Each form: texts of which one is in every secret of the form, in small letters; the form; and what is shown."""


def without_secrets(text: str) -> str:
    """Returns the text with `***` in place of secrets: users and passwords in URLs, the values of settings whose names
    say that they are secret, headers, private keys, and tokens of known forms.

    All text that may have secrets and is shown, stored or sent passes through this function.

    >>> without_secrets("cannot reach postgresql://ada:s3cret@db:5432/plays with sslpassword=x")
    'cannot reach postgresql://***@db:5432/plays with sslpassword=***'
    >>> without_secrets("GET https://a.example/x?sv=1&sig=s3cret&se=2, Authorization: Bearer s3cret")
    'GET https://a.example/x?sv=1&sig=***&se=2, Authorization: ***'
    """
    small = text.lower()
    for hints, form, shown in _FORMS:
        if any(hint in small for hint in hints):
            text = form.sub(shown, text)
    return text


def shown_settings(settings: Mapping[str, object]) -> str:
    """Returns the `repr` of settings, with `***` for the values of secret ones, and for secrets in other values.

    >>> shown_settings({"spark.hadoop.fs.s3a.secret.key": "s3c,ret", "spark.ui.enabled": "false"})
    "{'spark.hadoop.fs.s3a.secret.key': '***', 'spark.ui.enabled': 'false'}"
    """
    return repr(
        {
            name: "***" if is_secret(name) else without_secrets(value) if isinstance(value, str) else value
            for name, value in settings.items()
        }
    )


def is_secret(name: str) -> bool:
    """True if the value of a setting of this name must not be shown."""
    return without_secrets(f"{name}=value") != f"{name}=value"
