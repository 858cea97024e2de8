"""The table of engines: which version is brought, and what each needs of the machine.

A new engine gets its row here and a starter file of its own. No row may name where its jars or
packages come from, only what they are called there.
"""

from __future__ import annotations

from tests.engines.h2spec import H2SPEC
from tests.engines.maven import Jars
from tests.engines.need import Java, Loopback, Module, Need
from tests.redis.builds import BUILDS, PIP_TEST, REDIS_7
from tests.redis.certificates import OPENSSL

PIP = "pip install --group engines"
KAFKA_VERSION = "4.3.1"
CASSANDRA_VERSION = "5.0.9"
S3PROXY_VERSION = "4.1.0"
CASSANDRA_HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")

KAFKA_JARS = Jars(
    "kafka",
    KAFKA_VERSION,
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        # The server's jars speak slf4j 1.7 and bring log4j 2.25.4, but not what joins the two.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
CASSANDRA_JARS = Jars(
    "cassandra",
    CASSANDRA_VERSION,
    (f"org.apache.cassandra:cassandra-all:{CASSANDRA_VERSION}",),
)
S3PROXY_JARS = Jars(
    "s3proxy",
    S3PROXY_VERSION,
    (
        f"org.gaul:s3proxy:{S3PROXY_VERSION}",
        # Of the two that it asks for Maven takes the older, for which its Jackson is too new.
        "com.fasterxml.jackson.core:jackson-annotations:2.22",
    ),
)
REDIS_PY = Module("redis", PIP_TEST)

ENGINES: dict[str, tuple[Need, ...]] = {
    "kafka": (Module("confluent_kafka", PIP), Java(17), KAFKA_JARS),
    # 5.0 is made for Java 11 and 17; it installs a security manager, which later Javas refuse.
    "cassandra": (
        Module("cassandra", PIP),
        Loopback(CASSANDRA_HOSTS),
        Java(17, 17),
        CASSANDRA_JARS,
    ),
    "s3proxy": (Module("obstore", "pip install '.[s3]'"), Java(17), S3PROXY_JARS),
    # Not a server: the asyncio driver, for the tests that compare the two drivers.
    "acsylla": (Module("acsylla", PIP),),
    # A suite rather than a server: built from its Go module.
    "h2spec": (H2SPEC,),
    # Redis 6.2, Redis 7 and Valkey: not jars but a program each.
    **{build.name: (REDIS_PY, build) for build in BUILDS},
    # The programs in the wheels are built without TLS.
    "redis-tls": (REDIS_PY, OPENSSL, REDIS_7),
}
JARS = (KAFKA_JARS, CASSANDRA_JARS, S3PROXY_JARS)
