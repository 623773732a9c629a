"""The settings of a connection to a Kafka cluster, for confluent-kafka in process and for Spark's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from beamlike.errors import missing_package

COMMON: Final = {"isolation.level": "read_committed"}
"""The settings of every reader. Messages of aborted transactions are not read."""

_JAAS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEM: Final = {
    "ssl.ca": ("ssl.truststore.type", "ssl.truststore.certificates"),
    "ssl.certificate": ("ssl.keystore.type", "ssl.keystore.certificate.chain"),
    "ssl.key": ("ssl.keystore.type", "ssl.keystore.key"),
}
"""The settings that librdkafka accepts either as text (`.pem`) or as the path of a file (`.location`)."""

_NAMED: Final = "ssl.endpoint.identification.algorithm"
_NO_NAME: Final = "none"  # Java expects an empty text instead


def confluent_kafka() -> ModuleType:
    """Imports the client library. Raises `MissingPackage`, which names the package to install."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ModuleNotFoundError as error:
        raise missing_package("bl.Kafka needs confluent-kafka", "kafka", error) from None
    return confluent_kafka


def for_java(options: Mapping[str, str]) -> dict[str, str]:
    """Converts confluent-kafka's settings to those of the Java client, where they differ.

    Certificates and keys are read from their files here, so that Spark executors need no such files. Raises `OSError`
    if that fails.
    """
    left = {**COMMON, **options}
    found: dict[str, str] = {}
    mechanism = left.pop("sasl.mechanisms", None) or left.pop("sasl.mechanism", None)
    if mechanism is not None:
        found["sasl.mechanism"] = mechanism
    user, password = left.pop("sasl.username", None), left.pop("sasl.password", "")
    if user is not None:
        module = _JAAS[mechanism or "PLAIN"]
        quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
        found["sasl.jaas.config"] = f'{module} required username="{quoted[0]}" password="{quoted[1]}";'
    for name, (kind, content) in _PEM.items():
        text, file = left.pop(f"{name}.pem", None), left.pop(f"{name}.location", None)
        if text is None and file is not None:
            text = Path(file).read_text(encoding="utf-8")
        if text is not None:
            found |= {kind: "PEM", content: text}
    if left.get(_NAMED) == _NO_NAME:
        found[_NAMED] = ""
    return {**left, **found}
