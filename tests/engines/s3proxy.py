"""Starts S3Proxy, an S3 server that people run, over a folder: one process, signatures checked.

How it is set up and when it is ready lives here. What a test proves must not.
"""

from __future__ import annotations

import http.client
from itertools import count
from typing import Final

from tests.engines.catalogue import S3PROXY_JARS
from tests.engines.child import free_port
from tests.engines.cluster import Cluster
from tests.engines.need import java
from tests.stores.blobs.s3_server import SECRETS

HOST: Final = "127.0.0.1"
ASK_S_MAX: Final = 5.0
REGION: Final = "eu-west-1"
JVM: Final = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
)
# Without it every byte on the wire is logged.
LOGBACK: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
SETTINGS: Final = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={identity}
s3proxy.credential={credential}
jclouds.provider=filesystem
jclouds.filesystem.basedir={data}
"""


class S3Proxy(Cluster):
    """One server; what is in it is in files, and survives its end."""

    engine = "s3proxy"
    member = "server"
    bucket = "images"

    def __init__(self) -> None:
        super().__init__(1)
        self.port = 0
        self._numbers = count()

    def url(self) -> str:
        """The URL of a store that nobody else has used."""
        return (
            f"s3://{self.bucket}/{next(self._numbers)}"
            f"?endpoint=http://{HOST}:{self.port}&region={REGION}&allow_http=1"
        )

    def _prepare(self) -> None:
        self.port = free_port(HOST)
        (self._data(1) / self.bucket).mkdir(parents=True)  # a bucket is a folder
        (self.folder / "logback.xml").write_text(LOGBACK)
        identity, credential = SECRETS.values()
        settings = SETTINGS.format(
            host=HOST,
            port=self.port,
            identity=identity,
            credential=credential,
            data=self._data(1),
        )
        (self.folder / "s3proxy.properties").write_text(settings)

    def _command(self, number: int) -> list[str]:
        return [
            java() or "java",
            *JVM,
            f"-Dlogback.configurationFile={self.folder / 'logback.xml'}",
            f"-Djava.io.tmpdir={self.scratch}",
            "-cp",
            S3PROXY_JARS.class_path,
            "org.gaul.s3proxy.Main",
            "--properties",
            str(self.folder / "s3proxy.properties"),
        ]

    def _answers(self, number: int) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ASK_S_MAX)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.FORBIDDEN  # nobody signed it
        finally:
            connection.close()
