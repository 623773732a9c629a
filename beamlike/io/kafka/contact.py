"""Requests to the brokers of a cluster about topics and offsets. Their errors become messages for users."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

import attrs

from beamlike.errors import PlanError, SourceError
from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.offsets import split_name, split_of

PATIENCE: Final = 60.0
"""The timeout for a message or an answer, in seconds."""

_FIRST: Final = 10.0  # seconds to wait for brokers that have never answered, and may not exist
_STEP: Final = 1.0  # seconds of one call of the client, which signals cannot interrupt

_LOG = logging.getLogger("beamlike")


@attrs.define
class Contact:
    """A connection to the brokers, with the latest error of each kind that the clients reported."""

    servers: str
    common: Mapping[str, Any]
    _complaints: dict[int, Any]
    _admin: Any
    _has_answered: bool = attrs.field(default=False, init=False)

    @classmethod
    def to(cls, servers: str, options: Mapping[str, str]) -> Self:
        """Creates the clients, without sending a request. Raises `PlanError` for options that the client library
        refuses.
        """
        complaints = dict[int, Any]()
        common = {
            "bootstrap.servers": servers,
            "log_level": 0,
            "error_cb": lambda error: complaints.update({error.code(): error}),
            **options,
        }
        with _accepted():
            admin = confluent_kafka().admin.AdminClient(common)
        return cls(servers, common, complaints, admin)

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        """Returns a client that reads messages."""
        with _accepted():
            return confluent_kafka().Consumer({**settings, **self.common})

    def topics(self) -> Any:
        """Returns the topics. Waits until the brokers answer.

        The timeout is `PATIENCE` seconds, or `_FIRST` seconds if the brokers have never answered.
        """
        since, patience = time.monotonic(), PATIENCE if self._has_answered else _FIRST
        warned = False
        while True:
            try:
                with self.failing("be asked for its topics"):
                    found = self._admin.list_topics(timeout=_STEP).topics
            except SourceError as error:
                if time.monotonic() - since > patience or self._is_refused:
                    raise
                if not warned:
                    _LOG.warning("%s; trying again for %.0fs", error, patience)
                warned = True
            else:
                self._has_answered = True
                self._complaints.clear()
                return found

    @property
    def _is_refused(self) -> bool:
        return confluent_kafka().KafkaError._AUTHENTICATION in self._complaints

    def listed(self, names: Iterable[str], spec: Any) -> dict[str, int]:
        """Returns the offset of each named partition. `spec` is an offset specification of the client library."""
        client = confluent_kafka()
        asked = {client.TopicPartition(*split_of(name)): spec for name in names}
        committed = client.IsolationLevel.READ_COMMITTED
        with self.failing("be asked for its offsets"):
            found = self._admin.list_offsets(asked, isolation_level=committed, request_timeout=PATIENCE)
            return {
                split_name(of.topic, of.partition): future.result().offset for of, future in found.items()
            }

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Converts the client's errors to `SourceError`. `what` says what failed."""
        try:
            yield
        except confluent_kafka().KafkaException as error:
            self._admin.poll(0)  # this call runs the error callbacks
            why = dict.fromkeys(one.str() for one in (error.args[0], *self._complaints.values()))
            raise SourceError(f"Kafka at {self.servers} cannot {what}: {'; '.join(why)}") from None


@contextmanager
def _accepted() -> Iterator[None]:
    try:
        yield
    except confluent_kafka().KafkaException as error:
        raise PlanError(f"Kafka: the client refuses these options: {error.args[0].str()}") from None
