"""Settings of Hadoop's S3A client as arguments of pyarrow."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import beamlike as bl
from beamlike.io.files.access import access_to, forget, s3_of, use
from beamlike.io.files.paths import file_system
from beamlike.runtime.batch.dead_letter_folder import CheckpointLetters
from beamlike.spark.checkpoint.s3_settings import NotFollowed, S3Settings
from beamlike.spark.query.file_operators import StateFolder

A = "org.apache.hadoop.fs.s3a."
DEFAULT = ",\n ".join(
    [
        f"{A}TemporaryAWSCredentialsProvider",
        f"{A}SimpleAWSCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        f"{A}auth.IAMInstanceCredentialsProvider",
    ]
)
KEYS = {"access.key": "ada", "secret.key": "hunter2"}
PLACE = "s3a://bucket/checkpoint"


def follow(settings: dict[str, str]) -> dict[str, Any]:
    """Returns the options for a bucket `b`."""
    named = {
        f"fs.s3a.{name}": value for name, value in ({"aws.credentials.provider": DEFAULT} | settings).items()
    }
    return dict(S3Settings("b", named.get, named.get).options())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (KEYS, {"access_key": "ada", "secret_key": "hunter2"}),
        (
            {**KEYS, "session.token": "t"},
            {"access_key": "ada", "secret_key": "hunter2", "session_token": "t"},
        ),
        ({"access.key": "ada"}, {}),
        ({**KEYS, "bucket.b.access.key": "bob"}, {"access_key": "bob", "secret_key": "hunter2"}),
        ({**KEYS, "bucket.other.access.key": "bob"}, {"access_key": "ada", "secret_key": "hunter2"}),
        ({"endpoint.region": "eu-west-1"}, {"region": "eu-west-1"}),
        ({"connection.ssl.enabled": "false"}, {"scheme": "http"}),
        ({"endpoint": "s3.amazonaws.com"}, {}),
        (
            {"endpoint": "s3.eu-west-1.amazonaws.com"},
            {
                "endpoint_override": "s3.eu-west-1.amazonaws.com",
                "scheme": "https",
                "region": "eu-west-1",
                "force_virtual_addressing": True,
            },
        ),
        ({"endpoint": "http://10.0.0.1:9000/"}, {"endpoint_override": "10.0.0.1:9000", "scheme": "http"}),
        (
            {"endpoint": "minio:9000", "path.style.access": "true", "connection.ssl.enabled": "false"},
            {"endpoint_override": "minio:9000", "scheme": "http"},
        ),
        (
            {"endpoint": "https://minio:9000"},
            {"endpoint_override": "minio:9000", "scheme": "https", "force_virtual_addressing": True},
        ),
        ({"aws.credentials.provider": f"{A}AnonymousAWSCredentialsProvider", **KEYS}, {"anonymous": True}),
        ({"bucket.b.aws.credentials.provider": f"{A}AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        ({"aws.credentials.provider": "com.amazonaws.auth.InstanceProfileCredentialsProvider", **KEYS}, {}),
        (
            {
                "aws.credentials.provider": f"{A}auth.AssumedRoleCredentialProvider",
                "assumed.role.arn": "arn:aws:iam::1:role/r",
                "assumed.role.session.name": "run",
                "assumed.role.credentials.provider": f"{A}auth.IAMInstanceCredentialsProvider",
            },
            {"role_arn": "arn:aws:iam::1:role/r", "session_name": "run"},
        ),
    ],
)
def test_settings_of_hadoop_are_arguments_of_pyarrow(
    settings: dict[str, str], expected: dict[str, Any]
) -> None:
    assert follow(settings) == expected
    s3_of(use(PLACE, tuple(sorted(expected.items()))))  # pyarrow accepts them
    forget(PLACE)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"aws.credentials.provider": "com.me.Mine"}, "fs.s3a.aws.credentials.provider (com.me.Mine)"),
        (
            {"bucket.b.aws.credentials.provider": "com.me.ProfileCredentialsProvider"},
            "fs.s3a.bucket.b.aws.credentials.provider (com.me.ProfileCredentialsProvider)",
        ),
        ({"encryption.algorithm": "SSE-KMS"}, "fs.s3a.encryption.algorithm"),
        (
            {"bucket.b.server-side-encryption-algorithm": "AES256"},
            "fs.s3a.bucket.b.server-side-encryption-algorithm",
        ),
        ({"requester.pays.enabled": "TRUE"}, "fs.s3a.requester.pays.enabled"),
        ({"proxy.host": "proxy"}, "fs.s3a.proxy.host"),
        (
            {"aws.credentials.provider": f"{A}auth.AssumedRoleCredentialProvider", **KEYS},
            "fs.s3a.assumed.role.credentials.provider (the default)",
        ),
    ],
)
def test_a_setting_that_pyarrow_cannot_follow_is_named_without_secrets(
    settings: dict[str, str], named: str
) -> None:
    with pytest.raises(NotFollowed) as error:
        follow({**settings, "secret.key": "hunter2"})
    assert str(error.value) == named


def test_a_provider_that_pyarrow_cannot_follow_does_no_harm_after_one_that_has_credentials() -> None:
    assert follow({**KEYS, "aws.credentials.provider": f"{A}SimpleAWSCredentialsProvider, com.me.Mine"})


@pytest.fixture
def secret() -> Iterator[tuple[tuple[str, Any], ...]]:
    yield tuple(sorted({"access_key": "ada", "secret_key": "hunter2", "region": "eu-west-1"}.items()))
    forget(PLACE)


@pytest.mark.usefixtures("secret")
def test_a_copy_in_another_process_is_in_use_there(secret: Any) -> None:
    access = use(PLACE, secret)
    folder = StateFolder(f"{PLACE}/beamlike/state", f"{PLACE}/offsets", access, query="query")
    letters = CheckpointLetters(f"{PLACE}/beamlike/dead-letters", access=access)
    for carrier in (folder, letters):
        sent = pickle.dumps(carrier)
        forget(PLACE)
        assert access_to(f"{PLACE}/beamlike/state/data") is None
        assert pickle.loads(sent) == carrier  # of this process
        assert access_to(f"{PLACE}/beamlike/state/data") == access
        system, path = file_system(f"{PLACE}/beamlike/state/data")
        assert (system.system.region, path) == ("eu-west-1", "bucket/checkpoint/beamlike/state/data")
        assert access_to("s3a://bucket/checkpoint-2") is None
        assert access_to("s3a://bucket") is None
        assert "hunter2" not in repr((carrier, access))


def test_the_repr_of_a_runner_shows_no_secrets() -> None:
    config = {"spark.hadoop.fs.s3a.secret.key": "hunt,er2", "spark.hadoop.fs.s3a.access.key": "ada"}
    shown = repr(bl.SparkRunner(config={**config, "spark.ui.enabled": "false"}))
    assert "er2" not in shown
    assert "ada" not in shown
    assert "'spark.ui.enabled': 'false'" in shown
