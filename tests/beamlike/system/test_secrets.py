"""Secrets in text: the usual forms are hidden, other text stays as it is, and long hostile text takes no time."""

import time
from typing import Final

import pytest

from beamlike.system.secrets import is_secret, shown_settings, without_secrets

FORMS: Final = (
    # Settings, with all signs, quotes and languages.
    "password=S3",
    "password:S3",
    "password = 'a S3'",
    'password="a \\" S3"',
    "user=u password='it''s S3'",
    "password=b'S3'",
    'password="cut S3',
    "password=S1,S3",
    "password=(S1)S3",
    "password=$(S3)",
    "password=a&S3",
    "password=a;S3",
    "password => S3",
    "token == S3",
    'password: str = "S3"',
    'os.environ["PASSWORD"] = "S3"',
    "Password:\n  S3",
    '{"password":"S3","user":"ada"}',
    "{'password': 'a S3', 'user': 'ada'}",
    '{\\"password\\": \\"a S3\\"}',
    "(('secret_key', 'S3'), ('region', 'x'))",
    "<SecretAccessKey>S3</SecretAccessKey>",
    "client_secret%3DS3",
    "password%3a%22S3%22",
    "--token=S3",
    "mysql --password S3",
    # Names.
    "pwd=S3",
    "PGPASSWORD=S3",
    "dbPass=S3",
    "sslpassword=S3",
    "ssl.keystore.pass=S3",
    "passphrase=S3",
    "sig=S3",
    "auth=S3",
    "api_key=S3",
    "private_key=S3",
    "aws_secret_access_key=aa/S3+b",
    "AWS_SESSION_TOKEN=S3",
    "spark.hadoop.fs.s3a.access.key=S3",
    "basic.auth.user.info=u:S3",
    "sasl.oauthbearer.config=S3",
    'sasl.jaas.config=x required username="u" password="S3";',
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=S3/a==;EndpointSuffix=x",
    "SharedAccessKeyName=n;SharedAccessKey=S3",
    # Sentences.
    "password is S3",
    "the password was 'S3 x'",
    "PASSWORD S3",
    "token S3",
    "CREATE USER a IDENTIFIED BY 'S3'",
    "curl -u ada:S3 http://h",
    # Headers.
    "Authorization: Bearer S3",
    "authorization=Basic S3",
    "Authorization: SharedKey account:S3",
    "{'Authorization': 'Token S3'}",
    "X-Api-Key: S3",
    "Cookie: a=b; session=S3",
    "Bearer S3",
    # URLs.
    "postgresql://u:S3@h/d",
    "postgresql://u:p S3@h/d",
    "postgresql://u:p@ss/S3@127.0.0.1:1/db",
    "u:p@ss/S3@127.0.0.1:1/db",
    "redis://:S3@h",
    "postgresql://h:S3/d",
    "mongodb+srv://u:S3@h",
    "https://S3@sentry.example/1",
    "jdbc:oracle:thin:u/S3@h",
    "jdbc:sqlserver://h;user=u;password=S3;x",
    "https://h/x?sv=1&sig=S3&se=2",
    "https://h/x?X-Amz-Signature=S3",
    "https://maps.example/x?key=S3&y=1",
    "https://hooks.slack.com/services/T0/B0/S3",
    "https://discord.com/api/webhooks/1/S3",
    "{'passwords': ['S3', 'S4'], 'user': 'ada'}",
    "passwords: ['a1','S3']",
    '{"tokens": ["abc", "S3"]}',
    '["password", "S3"]',
    "mysql://u:p'S3@h/d",
    'Authorization: Digest username="u", response="S3"',
    # Forms of their own.
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nS3\n-----END PGP PRIVATE KEY BLOCK-----",
    "hf_S3abcdefghijklmnopqrstuv",
    "npm_S3abcdefghijklmnopqrstuv",
    "SG.S3abcdefghij.abcdefghijklm",
    "ya29.S3abcdefghij",
    "dckr_pat_S3abcdefghij",
    "-----BEGIN RSA PRIVATE KEY-----\nS3\n",
    "id eyJhbGciOiJIUzI1NiJ9.S3abcdef.xyz",
)

KEPT: Final = (
    "unexpected token ']' at 5",
    "password authentication failed for user",
    "wrong password, the token expired",
    "the password is wrong",
    "the primary key 'user' is null",
    "no column 'token', the columns are 'user', 'points'",
    "column 'token' is Int64, expected String",
    "tokens=5, max_tokens=6, author=ada, key=ada, pass_rate=0.5, exit code=1",
    "signature f(x1)",
    "at 12:30:05, line 3:4",
    "http://localhost:8080 answers ada@example.com",
    "s3://bucket/x?y=1 and kafka://b1:9092",
    "abfss://container@account.dfs.core.windows.net/x",
    "file:/data/a@b.csv",
)


@pytest.mark.parametrize("text", FORMS)
def test_a_secret_in_a_usual_form_is_hidden_and_the_rest_is_not_lost(text: str) -> None:
    shown = without_secrets(f"cannot reach it: {text}")
    assert "S3" not in shown
    assert shown.startswith("cannot reach it: ")
    assert "***" in shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize("text", KEPT)
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("around", ["{}", "a {} b", "({})", "\n{}\n", "ValueError: {}, x=1"])
def test_what_stands_around_a_secret_does_not_show_it(around: str) -> None:
    assert [text for text in FORMS if "S3" in without_secrets(around.format(text))] == []


@pytest.mark.parametrize(
    "part",
    [
        "A",
        "://",
        "a:",
        "a@",
        "pass",
        "secret.",
        "token ",
        "password='",
        'password: "\\',
        "u:p@",
        "('a",
        "[]",
        "1a/",
        "a:1,",
        "12:30,",
        "jdbc:",
        "jdbc:a:b:",
    ],
)
def test_long_text_takes_no_time(part: str) -> None:
    begun = time.process_time()
    without_secrets(part * (20_000 // len(part)) + " ada@x.org")
    assert time.process_time() - begun < 2


def test_settings_are_shown_with_their_secret_values_hidden() -> None:
    settings = {"fs.s3a.secret.key": "hun,ter", "url": "jdbc:postgresql://h/d?user=u&password=hunter", "n": 1}
    assert shown_settings(settings) == (
        "{'fs.s3a.secret.key': '***', 'url': 'jdbc:postgresql://h/d?user=u&password=***', 'n': 1}"
    )
    assert is_secret("sasl.password")
    assert not is_secret("bootstrap.servers")
