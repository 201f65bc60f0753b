"""How a client gets in, in the words of each client library.

Owns: the names of settings in kafka-python, aiokafka, confluent-kafka and Java.  Owns neither keys nor users.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

from pybroker.config import jaas
from pybroker.security import plain, scram

LIBRARIES: Final = ("kafka-python", "aiokafka", "confluent-kafka", "java")


class ClientAccess(NamedTuple):
    """One client's.  ``ca`` is the file with the authority's certificate, ``key`` one with its own key and certificate,
    both PEM.  Printed without the password.
    """

    bootstrap: str
    protocol: str = "PLAINTEXT"
    ca: Path | None = None
    key: Path | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"ClientAccess({self.bootstrap}, {self.protocol}, {self.user or 'nobody'})"

    def settings(self, library: str) -> dict[str, Any]:
        """What the library's clients are given besides their own settings; ValueError for one that is not known."""
        if library == "kafka-python":
            return self._kafka_python()
        if library == "aiokafka":
            return self._aiokafka()
        if library == "confluent-kafka":
            return self._confluent_kafka()
        if library == "java":
            return self._java()
        raise ValueError(f"no such library: {library}; there are {', '.join(LIBRARIES)}")

    def _kafka_python(self) -> dict[str, Any]:
        given = {**self._in_python(), "ssl_cafile": self.ca, "ssl_certfile": self.key, "ssl_keyfile": self.key}
        return {name: str(value) for name, value in given.items() if value is not None}

    def _aiokafka(self) -> dict[str, Any]:
        given = {name: value for name, value in self._in_python().items() if value is not None}
        if self.ca is not None:
            context = ssl.create_default_context(cafile=str(self.ca))
            if self.key is not None:
                context.load_cert_chain(self.key)
            return {**given, "ssl_context": context}
        return given

    def _in_python(self) -> dict[str, Any]:
        login = (
            {}
            if self.mechanism is None
            else {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        )
        return {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol, **login}

    def _confluent_kafka(self) -> dict[str, Any]:
        given = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.key,
            "ssl.key.location": self.key,
            "sasl.mechanism": self.mechanism,
            **({} if self.mechanism is None else {"sasl.username": self.user, "sasl.password": self.password}),
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def _java(self) -> dict[str, Any]:
        """Also of Spark's Kafka connector, whose options have ``kafka.`` in front."""
        given: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.ca is not None:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.key is not None:
            given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.key)}
        if self.mechanism is not None:
            module = plain.LOGIN_MODULE if self.mechanism == plain.MECHANISM else scram.LOGIN_MODULE
            login = {"username": self.user, "password": self.password}
            given["sasl.mechanism"] = self.mechanism
            given["sasl.jaas.config"] = jaas.text_of(jaas.LoginModule(module, "REQUIRED", login))
        return given
