"""Apache Kafka itself: one KRaft node from Maven's jars, for what the embedded broker cannot show.

Its topics survive a restart and a kill, it holds ACLs and retention, and it counts as production does. It takes Java 17
and, for the jars, Maven: `make kafka` fetches them once.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from wallet_project.dev import console, processes
from wallet_project.dev.processes import DevError, Stopped
from wallet_project.dev.servers import HOST, Server, write_private
from wallet_project.dev.stack import CHECKOUT

_JARS = CHECKOUT / ".kafka"
_POM = Path(__file__).with_name("kafka-pom.xml")
_CLUSTER = "d2FsbGV0LXdhbGxldC13YQ"  # any 16 bytes in base64

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # How soon a broker that was killed is taken for dead, and may come back: milliseconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Rights as in production; who has none written down may do everything, until a test writes some.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Old segments go within seconds, so that a test sees it.
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


def missing() -> str | None:
    """What this machine lacks to run it; None if nothing."""
    if shutil.which("java") is None:
        return "Java"
    return None if any(_JARS.glob("kafka_*.jar")) else "the jars, which `make kafka-jars` fetches"


def fetch() -> int:
    """Get the jars from Maven Central, unless they are here; the exit code.

    Raises:
        DevError: there is no Maven, or it could not get them; its output stands above.
    """
    if any(_JARS.glob("kafka_*.jar")):
        return 0
    if shutil.which("mvn") is None:
        raise DevError("Apache Kafka's jars come from Maven Central, and there is no Maven here.")
    console.say("fetching Apache Kafka's jars")
    unfinished = _JARS.with_name(f"{_JARS.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    if subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", _POM, *goal], check=False).returncode != 0:
        raise DevError("Maven could not get Apache Kafka's jars.")
    shutil.rmtree(_JARS, ignore_errors=True)
    unfinished.rename(_JARS)
    return 0


class Kafka(Server):
    """A Kafka broker that is its own controller. Stopped, killed and started again, it keeps its topics."""

    name = "kafka"
    program = "java"

    @property
    def url(self) -> str:
        """In librdkafka's words: a bootstrap server."""
        return f"{HOST}:{self.port}"

    @property
    def configuration(self) -> Path:
        return self.home / "server.properties"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        self._configure()
        if not (self.data / "logs" / "meta.properties").exists():
            self._format()
        return [*_java("kafka.Kafka"), self.configuration]

    def answers(self) -> bool:
        try:
            admin = AdminClient({"bootstrap.servers": self.url, "log_level": 0})
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _configure(self) -> None:
        controller = self.port + 10_000  # above the range that ports are chosen from
        settings = _SETTINGS | {
            "log.dirs": str(self.data / "logs"),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }
        write_private(self.configuration, "".join(f"{name}={value}\n" for name, value in settings.items()))

    def _format(self) -> None:
        command = [*_java("kafka.tools.StorageTool"), "format", "-t", _CLUSTER, "-c", self.configuration]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DevError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")


def _java(main: str) -> list[str | Path]:
    # A heap and a compiler for a small machine that has other things to do.
    options = [
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ]
    return [shutil.which("java") or "java", *options, "-cp", f"{_JARS}/*", main]


@contextmanager
def running(home: Path) -> Iterator[Kafka]:
    """A broker at home in this directory, for as long as the block runs.

    Raises:
        DevError: it does not start; the end of its log tells why.
    """
    broker = Kafka(home)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def run() -> int:
    """`make kafka`: a broker in the foreground, with nothing in it, gone at Ctrl-C. The exit code.

    Raises:
        DevError: it cannot start, or died.
    """
    fetch()
    processes.listen_for_stop()
    with tempfile.TemporaryDirectory(prefix="wallet-kafka-") as home:
        try:
            with running(Path(home)) as broker:
                console.show(
                    f"\n  Apache Kafka is up:  export KAFKA_BOOTSTRAP_SERVERS={broker.url}\n  Ctrl-C stops it.\n"
                )
                child = broker.child
                processes.wait_until(lambda: child is None or child.exit_code is not None)
                raise DevError("Kafka ended.")
        except Stopped:
            return 0
