"""A Kubernetes manifest as shipped, made ready for one of its containers to be started here."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml


class Manifest:
    """Sets the environment that a container of the manifest's first deployment would have."""

    def __init__(
        self,
        file: Path,
        tmp_path: Path,
        *,
        callers: str,
        rules: Path | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """`rules` and `callers` are what its config map and its access secret hold.

        `secrets` are texts by the name of their file, for all other secrets.
        """
        self.deployment, self.service, *_ = yaml.safe_load_all(file.read_text())
        self._pod = self.deployment["spec"]["template"]
        (self.container,) = self._pod["spec"]["containers"]
        (self.port,) = self.container["ports"]
        self._tmp_path = tmp_path
        self._secrets = dict(secrets or {})
        self._folders = self._mounted(rules, callers)
        self.context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def check_labels(self) -> None:
        """The service finds the pods, and the deployment its own."""
        labels = self._pod["metadata"]["labels"].items()
        assert self.service["spec"]["selector"].items() <= labels
        assert self.deployment["spec"]["selector"]["matchLabels"].items() <= labels
        assert self.service["spec"]["ports"][0]["targetPort"] == self.port["name"]

    def set_environment(
        self,
        prefix: str,
        monkeypatch: pytest.MonkeyPatch,
        *,
        redis_port: int = 0,
        pod: str = "",
        here: Mapping[str, str] | None = None,
    ) -> list[str]:
        """All but where it listens; return what its command has behind the service's name.

        Each Redis is the one at this port, and `here` has what else is called otherwise here.
        """
        environment = {one["name"]: self._value_of(one, pod) for one in self.container["env"]}
        assert environment.pop(f"{prefix}LISTEN") == f"0.0.0.0:{self.port['containerPort']}"
        for variable, value in [*environment.items()]:
            found = self._found(value, here or {})
            if value.startswith("redis://"):
                database = value.partition("6379")[2]
                found = f"redis://127.0.0.1:{redis_port}{database}?timeout_ms=5000"
            environment[variable] = found
            monkeypatch.setenv(variable, found)
        # What Kubernetes says of a service of this name to the pods beside it.
        name, port = self.service["metadata"]["name"], self.service["spec"]["ports"][0]["port"]
        of_service = name.replace("-", "_").upper()
        for variable, value in {
            "SERVICE_HOST": "10.0.0.1",
            "SERVICE_PORT": str(port),
            f"SERVICE_PORT_{self.port['name'].upper()}": str(port),
            "PORT": f"tcp://10.0.0.1:{port}",
            f"PORT_{port}_TCP": f"tcp://10.0.0.1:{port}",
            f"PORT_{port}_TCP_PROTO": "tcp",
            f"PORT_{port}_TCP_PORT": str(port),
            f"PORT_{port}_TCP_ADDR": "10.0.0.1",
        }.items():
            monkeypatch.setenv(f"{of_service}_{variable}", value)
        words = [self._found(word, here or {}) for word in self.container["command"][2:]]
        return [re.sub(r"\$\((\w+)\)", lambda name: environment[name[1]], word) for word in words]

    def _value_of(self, variable: dict[str, Any], pod: str) -> str:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name"
            return pod
        if "secretKeyRef" in source:
            return self._secrets[source["secretKeyRef"]["key"]]
        return str(variable["value"])

    def _found(self, text: str, here: Mapping[str, str]) -> str:
        for there, found in {**self._folders, **here}.items():
            text = text.replace(there, found)
        return text

    def init_command(self, here: Mapping[str, str]) -> list[str]:
        """What the container that comes before the others runs."""
        (init,) = self._pod["spec"]["initContainers"]
        return [self._found(word, here) for word in init["command"]]

    def probes(self) -> list[str]:
        """The paths that Kubernetes asks for, over TLS and at the container's port."""
        paths = []
        for probe in ("readinessProbe", "livenessProbe"):
            asked = self.container[probe]["httpGet"]
            assert (asked["port"], asked["scheme"]) == (self.port["name"], "HTTPS")
            paths.append(asked["path"])
        return paths

    def _mounted(self, rules: Path | None, callers: str) -> dict[str, str]:
        """What its volumes hold, as the manifest's head says how to make them, by mount path."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._tmp_path / "ca.pem")
        chain = authority.issue_cert("127.0.0.1", "localhost")
        folders: dict[str, str] = {}
        volumes = {volume["name"]: volume for volume in self._pod["spec"]["volumes"]}
        for claim in self.deployment["spec"].get("volumeClaimTemplates", ()):
            volumes[claim["metadata"]["name"]] = claim
        for mount in self.container["volumeMounts"]:
            volume = volumes.pop(mount["name"])
            folder = self._tmp_path / mount["name"]
            folder.mkdir()
            folders[mount["mountPath"]] = str(folder)
            if "configMap" in volume:
                assert rules is not None
                for file in rules.iterdir():
                    (folder / file.name).write_bytes(file.read_bytes())
            elif volume.get("secret", {}).get("secretName", "").endswith("-tls"):
                for pem in chain.cert_chain_pems:
                    pem.write_to_path(folder / "tls.crt", append=True)
                chain.private_key_pem.write_to_path(folder / "tls.key")
            elif volume.get("secret", {}).get("secretName", "").endswith("-access"):
                (folder / "callers.toml").write_text(callers)
            elif "secret" in volume:
                authority.cert_pem.write_to_path(folder / "ca.pem")
                for name, text in self._secrets.items():
                    (folder / name).write_text(text)
        assert not volumes
        return folders
