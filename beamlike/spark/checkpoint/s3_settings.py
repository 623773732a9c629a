"""The settings of Hadoop's S3A client (`fs.s3a.*`) as arguments of pyarrow's `S3FileSystem`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import attrs

_PACKAGES: Final = ("org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.", "com.amazonaws.")
_PROVIDERS: Final = "aws.credentials.provider"
_ROLE_PROVIDERS: Final = "assumed.role.credentials.provider"
_AMBIENT: Final = frozenset(
    {
        *("ContainerCredentialsProvider", "EC2ContainerCredentialsProviderWrapper"),
        *("DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider"),
        *("EnvironmentVariableCredentialsProvider", "IAMInstanceCredentialsProvider"),
        *(
            "InstanceProfileCredentialsProvider",
            "ProfileAWSCredentialsProvider",
            "ProfileCredentialsProvider",
        ),
        *("WebIdentityTokenCredentialsProvider", "WebIdentityTokenFileCredentialsProvider"),
    }
)
"""Providers whose credentials pyarrow finds as well: in the environment, in a profile, of a container or a machine."""
_UNKNOWN: Final = (
    *("accesspoint.arn", "acl.default", "custom.signers", "delegation.token.binding", "encryption.algorithm"),
    *("proxy.host", "server-side-encryption-algorithm", "signing-algorithm"),
)
"""Settings that pyarrow has no equivalent for."""
_UNKNOWN_SWITCHES: Final = ("endpoint.fips", "requester.pays.enabled")
_UNKNOWN_OF_ROLES: Final = ("assumed.role.policy", "assumed.role.sts.endpoint")
_OF_AMAZON: Final = re.compile(r"(?:.*\.)?s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?")


class NotFollowed(Exception):
    """The error for a setting that pyarrow cannot follow. It names the setting, and a value only if that is a class."""


@attrs.frozen
class S3Settings:
    """The settings for a bucket, by the part of the name after `fs.s3a.`. A setting of the bucket overrides the general
    one. `get` and `secret` return the value of a whole name, None if it is unset.
    """

    bucket: str
    get: Callable[[str], str | None]
    secret: Callable[[str], str | None]

    def options(self) -> tuple[tuple[str, Any], ...]:
        """Returns the arguments for pyarrow, sorted by name; none for what is not set. Raises `NotFollowed`."""
        for name in _UNKNOWN:
            if self._text(name):
                raise NotFollowed(self._named(name))
        for name in _UNKNOWN_SWITCHES:
            if self._switch(name):
                raise NotFollowed(self._named(name))
        found = {**self._endpoint(), **self._credentials()}
        return tuple(sorted(found.items()))

    def _endpoint(self) -> dict[str, Any]:
        scheme, _, host = (self._text("endpoint") or "").rstrip("/").rpartition("://")
        scheme = scheme or ("https" if self._switch("connection.ssl.enabled", default=True) else "http")
        region = self._text("endpoint.region")
        found: dict[str, Any] = {} if scheme == "https" else {"scheme": scheme}
        amazon = _OF_AMAZON.fullmatch(host)
        region = region or (amazon["region"] if amazon is not None else None)
        if host and (amazon is None or amazon["region"] is not None):  # without a region, pyarrow finds that
            found |= {"scheme": scheme, "endpoint_override": host}
            if not self._switch("path.style.access") and not _is_address(host):
                found["force_virtual_addressing"] = True
        return found | ({"region": region} if region else {})

    def _credentials(self) -> dict[str, Any]:
        """Returns the credentials of the first provider that has some."""
        access, secret, token = map(self._password, ("access.key", "secret.key", "session.token"))
        keys = {"access_key": access, "secret_key": secret}
        ambient = False
        for provider in self._names(_PROVIDERS):
            kind = self._known(_PROVIDERS, provider)
            if kind == "TemporaryAWSCredentialsProvider" and access and secret and token:
                return {**keys, "session_token": token}
            if kind == "SimpleAWSCredentialsProvider" and access and secret:
                return keys
            if kind == "AssumedRoleCredentialProvider":
                return self._role()
            if kind == "AnonymousAWSCredentialsProvider" and not ambient:
                return {"anonymous": True}
            ambient = ambient or kind in _AMBIENT
        return {}

    def _role(self) -> dict[str, Any]:
        for name in _UNKNOWN_OF_ROLES:
            if self._text(name):
                raise NotFollowed(self._named(name))
        for provider in self._names(_ROLE_PROVIDERS) or ["the default"]:
            if (
                provider.rpartition(".")[2] not in _AMBIENT
            ):  # pyarrow assumes a role with such credentials only
                raise NotFollowed(f"{self._named(_ROLE_PROVIDERS)} ({provider})")
        names = {"arn": "role_arn", "session.name": "session_name", "external.id": "external_id"}
        values = {option: self._text(f"assumed.role.{name}") for name, option in names.items()}
        return {option: value for option, value in values.items() if value}

    def _known(self, setting: str, provider: str) -> str:
        """Returns the name of a provider's class. Raises `NotFollowed` if pyarrow has no equivalent."""
        kind = provider.rpartition(".")[2]
        kinds = {"TemporaryAWSCredentialsProvider", "SimpleAWSCredentialsProvider"}
        kinds |= {"AssumedRoleCredentialProvider", "AnonymousAWSCredentialsProvider", *_AMBIENT}
        if kind not in kinds or not provider.startswith(_PACKAGES):
            raise NotFollowed(f"{self._named(setting)} ({provider})")
        return kind

    def _names(self, setting: str) -> list[str]:
        return [name.strip() for name in (self._text(setting) or "").split(",") if name.strip()]

    def _switch(self, name: str, *, default: bool = False) -> bool:
        text = self._text(name)
        return default if not text else text.lower() == "true"

    def _text(self, name: str) -> str | None:
        found = self.get(self._of_bucket(name))
        found = self.get(f"fs.s3a.{name}") if found is None else found
        return None if found is None else found.strip()

    def _password(self, name: str) -> str | None:
        return self.secret(self._of_bucket(name)) or self.secret(f"fs.s3a.{name}")

    def _named(self, name: str) -> str:
        """Returns the whole name of a setting, as the user has set it."""
        own = self._of_bucket(name)
        return f"fs.s3a.{name}" if self.get(own) is None else own

    def _of_bucket(self, name: str) -> str:
        return f"fs.s3a.bucket.{self.bucket}.{name}"


def _is_address(host: str) -> bool:
    """True for an IP address, in which no bucket can be part of the host."""
    with suppress(ValueError):
        ipaddress.ip_address(
            host.strip("[]") if host.endswith("]") else host.rpartition(":")[0].strip("[]") or host
        )
        return True
    return False
