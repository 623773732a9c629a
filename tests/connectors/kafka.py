"""A Kafka broker in KRaft mode, and operations on its topics for tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.connectors.certificates import self_signed
from tests.connectors.delays import Relay, relay
from tests.connectors.jars import jars

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},SECURE://127.0.0.1:{secure},RELAYED://127.0.0.1:{relayed},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker},SECURE://127.0.0.1:{secure},RELAYED://127.0.0.1:{relay}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,RELAYED:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/broker.pem
listener.name.secure.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_ada="lovelace";
listener.name.secure.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
log.dirs={folder}/data
auto.create.topics.enable=false
log.retention.ms=-1
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.max.timeout.ms=900000
"""


@contextmanager
def broker() -> Iterator[Cluster]:
    """Runs a broker and yields it; skips the test where none is installed."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java to run a broker of Kafka")
    classes = ":".join(map(str, jars("broker")))
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    try:
        port, secure, controller, at, relayed = _free_ports(5)
        certificate = self_signed(folder / "broker.pem")
        settings = folder / "server.properties"
        settings.write_text(
            _SETTINGS.format(
                broker=port,
                secure=secure,
                controller=controller,
                relayed=relayed,
                relay=at,
                folder=folder,
                security="org.apache.kafka.common.security",
            )
        )
        run = [java, "-Xmx512m", "-cp", classes]
        name = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatted = [*run, "kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", str(settings)]
        formatted += ["--add-scram", "SCRAM-SHA-512=[name=ada,password=lovelace]"]
        subprocess.run(formatted, check=True, capture_output=True, timeout=60)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*run, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            cluster = Cluster(
                f"127.0.0.1:{port}", f"127.0.0.1:{secure}", certificate, f"127.0.0.1:{at}", relayed
            )
            cluster.wait(server)
            yield cluster
        finally:
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(folder)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@attrs.frozen
class Cluster:
    """A broker, by its plain address, and its secured address with the file of its certificate.

    `relayed` is the address of a relay to its `relayed_port`, which a test may start.
    """

    servers: str
    secured: str
    certificate: Path
    relayed: str
    relayed_port: int

    @contextmanager
    def relay(self) -> Iterator[Relay]:
        """Runs a relay between clients of `relayed` and the broker."""
        with relay(int(self.relayed.rpartition(":")[2]), self.relayed_port) as made:
            yield made

    def options(self, mechanism: str) -> dict[str, str]:
        """Returns the client options for the secured address."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "ada",
            "sasl.password": "lovelace",
            "ssl.ca.location": str(self.certificate),
        }

    def wait(self, server: subprocess.Popen[bytes]) -> None:
        """Waits until the broker answers."""
        from confluent_kafka import KafkaException

        for _ in range(180):
            assert server.poll() is None, "the broker has ended"
            try:
                self._admin().list_topics(timeout=1)  # one that was refused waits for ever longer
            except KafkaException:
                continue
            return
        raise TimeoutError("the broker does not answer")

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _ask(self, what: str, of: Any) -> None:
        admin = self._admin()  # it must live until it has answered
        for answer in getattr(admin, what)([of]).values():
            answer.result()

    def topic(self, partitions: int = 1, name: str = "", **settings: str) -> str:
        """Creates a topic, by default with a unique name."""
        from confluent_kafka.admin import NewTopic

        name = name or f"plays-{uuid.uuid4().hex[:8]}"
        self._ask("create_topics", NewTopic(name, partitions, 1, config=settings))
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Increases the number of partitions of a topic."""
        from confluent_kafka.admin import NewPartitions

        self._ask("create_partitions", NewPartitions(topic, partitions))

    def anew(self, topic: str) -> None:
        """Replaces the topic by a new one of that name with one partition."""
        from confluent_kafka import KafkaException

        self._ask("delete_topics", topic)
        for _ in range(1_000):
            try:
                self.topic(name=topic)
            except KafkaException as error:  # until the old one is gone
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
            else:
                return
        raise TimeoutError("the topic does not go")

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """Removes messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        self._ask("delete_records", TopicPartition(topic, partition, offset))

    def send(
        self, topic: str, messages: Iterable[Mapping[str, Any] | bytes], partition: int = 0, **more: Any
    ) -> None:
        """Sends values; those that are not bytes are sent as JSON. `more` are arguments of `produce`."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for message in messages:
            value = json.dumps(message).encode() if isinstance(message, Mapping) else message
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(30) == 0
