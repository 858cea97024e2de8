"""The rulebook's document: valid, whole, and true of what is really answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from sluicegate.contracts.access import Grant
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin
from tests.doors.http.rules.serving import rules_of, running_rules_door
from tests.doors.listening import run

R = "/v1/rules"


def report(_: Mapping[str, str]) -> dict[str, Any]:
    return {"figures": [1, 2]}


def calls_in_order(one: str, two: str) -> list[tuple[str, str, Any, int]]:
    """Every route, each answer it has a name for, in an order in which they make sense."""
    p, q, r = f"{R}/proposals/{one}", f"{R}/proposals/{two}", {"reason": "r"}
    propose = {"base": "live", "changes": {"a.yaml": rules_of(1)}, "message": "m"}
    bad = {**propose, "changes": {"a.yaml": "rules: 1\n"}}
    return [
        ("GET", R, None, 200),
        ("GET", f"{R}?at=1", None, 200),
        ("GET", f"{R}/files/shop.yaml", None, 200),
        ("GET", f"{R}/files/no/such.yaml", None, 404),
        ("GET", f"{R}/diff?to={one}", None, 200),
        ("GET", f"{R}/proposals?state=open", None, 200),
        ("POST", f"{R}/proposals", propose, 201),
        ("POST", f"{R}/proposals", bad, 422),
        ("GET", p, None, 200),
        ("GET", f"{p}x", None, 404),
        ("GET", f"{R}/report/{one}", None, 200),
        ("GET", f"{R}/report/{one}?form=html", None, 200),
        ("POST", f"{p}/judge", {}, 200),
        ("POST", f"{p}/approve", {}, 200),
        ("POST", f"{p}/publish", {}, 200),
        ("POST", f"{q}/approve", {"override": "o"}, 200),
        ("POST", f"{q}/publish", {}, 409),
        ("POST", f"{q}/canary", {"share": 100, "kind": "nodes"}, 200),
        ("POST", f"{q}/reject", r, 400),
        ("POST", f"{q}x/reject", r, 404),
        ("POST", f"{R}/rollback", {"to": "1", **r}, 200),
        ("POST", f"{R}/pins", {"node": "n", "version": 1, **r}, 200),
        ("POST", f"{R}/nodes/forget", {"node": "n", **r}, 200),
        ("GET", f"{R}/versions", None, 200),
        ("GET", f"{R}/status", None, 200),
        ("GET", f"{R}/wait?version=1&timeout_s=0", None, 200),
        ("GET", f"{R}/audit", None, 200),
        ("GET", f"{R}/openapi.json", None, 200),
        ("GET", "/healthz", None, 200),
        ("GET", "/readyz", None, 200),
        ("GET", "/metrics", None, 200),
    ]


def test_the_document_is_valid_and_every_answer_is_as_it_says() -> None:
    async def story() -> None:
        async with running_rules_door(admin=MemoryRuleAdmin(report), reports={"html": str}) as here:
            document = (await here.ask("GET", f"{R}/openapi.json")).json
            OpenAPIV31SpecValidator(document).validate()
            assert document["openapi"].startswith("3.1")
            one = (await here.propose(rules_of(1)))["id"]
            two = (await here.propose(rules_of(2)))["id"]
            met = set()
            for method, path, body, status in calls_in_order(one, two):
                template = _template(document, path.partition("?")[0])
                operation = document["paths"][template][method.lower()]
                met.add((method, template))
                if body is not None and status != 422:
                    schema = operation["requestBody"]["content"]["application/json"]["schema"]
                    _check(document, schema, body)
                got = await here.ask(method, path, body)
                assert got.status == status, (method, path, got.body)
                response = operation["responses"].get(
                    str(status), operation["responses"]["default"]
                )
                kind = got.headers["content-type"].partition(";")[0]
                assert kind in response["content"], (method, path)
                if kind.endswith("json"):
                    _check(document, response["content"][kind]["schema"], json.loads(got.body))
            operations = {
                (method.upper(), path)
                for path, methods in document["paths"].items()
                for method in methods
            }
            assert met == operations
            tag = (await here.ask("GET", R)).headers["etag"]
            changed = await here.ask("GET", R, if_none_match=tag)
            assert changed.status == 304
            assert document["paths"][R]["get"]["responses"]["304"].keys() == {"description"}

    run(story)


def test_what_is_needed_is_said_the_grant_the_places_and_how_long_a_key_is_kept() -> None:
    async def story() -> None:
        async with running_rules_door(keys_kept_s=1_234) as here:
            document = (await here.ask("GET", f"{R}/openapi.json")).json
            propose = document["paths"][f"{R}/proposals"]["post"]
            key = next(one for one in propose["parameters"] if one["name"] == "Idempotency-Key")
            assert "1,234 s" in key["description"]
            for path, methods in document["paths"].items():
                places = re.findall(r"\{(\w+)\}", path)
                for method, operation in methods.items():
                    parameters = [
                        one for one in operation.get("parameters", ()) if one["in"] == "path"
                    ]
                    assert [one["name"] for one in parameters] == places
                    if path.startswith(R) and "openapi" not in path:
                        assert operation["security"]
                        grant = Grant.READ_RULES if method == "get" else Grant.APPROVE
                        if method == "post" and path.endswith(("/proposals", "/judge")):
                            grant = Grant.PROPOSE
                        assert operation["description"] == f"Needs the grant `{grant.value}`."
            names = [
                operation["operationId"]
                for methods in document["paths"].values()
                for operation in methods.values()
            ]
            assert len(set(names)) == len(names)

    run(story)


def _template(document: Any, path: str) -> str:
    if path in document["paths"]:
        return path
    for template in document["paths"]:
        parts = [re.escape(part) for part in re.split(r"\{\w+\}", template)]
        taken = r".+" if "files" in template else r"[^/]+"
        if "{" in template and re.fullmatch(taken.join(parts), path):
            return str(template)
    raise AssertionError(path)


def _check(document: Any, schema: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)
