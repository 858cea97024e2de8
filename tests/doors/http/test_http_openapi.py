"""The document: valid, whole, and true of what is really answered."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.doors.http.serving import running_door
from tests.doors.listening import run

ADA = {"user_id": "ada", "resource_path": "/play", "weight": 2}
MESH = {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}
CALLS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/check"): ADA,
    ("POST", "/v1/check?status=http"): {**ADA, "weight": 9},
    ("POST", "/v1/check?status=auth"): {**ADA, "weight": 9},
    ("POST", "/v1/check/batch"): {"requests": [ADA]},
    ("POST", "/v1/peek"): ADA,
    ("POST", "/v1/reset"): ADA,
    ("POST", "/v1/lease"): {"request": ADA, "units": 3},
    ("POST", "/v1/give-back"): {"lease_id": "lease-1", "units": 1},
    ("POST", "/json"): MESH,
    ("GET", "/v1/rulebook"): None,
    ("GET", "/v1/state"): None,
    ("GET", "/v1/audit?user=ada"): None,
    ("GET", "/openapi.json"): None,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/healthcheck"): None,
    ("GET", "/v1/check"): None,
    ("GET", "/metrics"): None,
}


def test_the_document_is_valid_and_every_answer_is_as_it_says() -> None:
    async def story() -> None:
        async with running_door() as here:
            document = (await here.ask("GET", "/openapi.json")).json
            OpenAPIV31SpecValidator(document).validate()
            assert document["openapi"].startswith("3.1")
            operations = {
                (method.upper(), path)
                for path, methods in document["paths"].items()
                for method in methods
            }
            assert operations == {(method, path.partition("?")[0]) for method, path in CALLS}
            for (method, path), body in CALLS.items():
                operation = document["paths"][path.partition("?")[0]][method.lower()]
                if body is not None:
                    schema = operation["requestBody"]["content"]["application/json"]["schema"]
                    _check(document, schema, body)
                headers = {"x_sluicegate_user": "ada"} if path == "/v1/check" else {}
                got = await here.ask(method, path, body, **headers)
                content = operation["responses"][str(got.status)]["content"]
                kind = got.headers["content-type"].partition(";")[0]
                if kind == "application/json":
                    _check(document, content[kind]["schema"], json.loads(got.body))
                else:
                    assert list(content) == [kind]
            problem = (await here.ask("POST", "/v1/check", b"{")).json
            _check(document, {"$ref": "#/components/schemas/Problem"}, problem)

    run(story)


def test_what_needs_a_name_says_so_and_health_needs_none() -> None:
    async def story() -> None:
        async with running_door() as here:
            paths = (await here.ask("GET", "/openapi.json")).json["paths"]
            assert "security" not in paths["/healthz"]["get"]
            assert {"token": []} in paths["/v1/check"]["post"]["security"]
            assert "`reset`" in paths["/v1/reset"]["post"]["description"]

    run(story)


def _check(document: Any, schema: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)
