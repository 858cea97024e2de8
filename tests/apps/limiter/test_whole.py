"""The command as a whole: started as a user starts it, asked through every door."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
import redis
import yaml
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sluicegate.protos import rate_limiter_pb2, rate_limiter_pb2_grpc
from tests.apps.limiter.process import ENVOY, NATIVE, LimiterProcess, rules_file
from tests.engines.child import free_port, run_to_end, until
from tests.test_docs import ROOT, readme_block

PLAYBACK = "/api/v1/playback"
README = ROOT / "README.md"
NOWHERE = {"user_id": "dan", "resource_path": "/nowhere/at/all"}


def mesh_ask(user: str, domain: str = "shop") -> rls_pb2.RateLimitRequest:
    entry = ratelimit_pb2.RateLimitDescriptor.Entry(key="user", value=user)
    descriptor = ratelimit_pb2.RateLimitDescriptor(entries=[entry])
    return rls_pb2.RateLimitRequest(domain=domain, descriptors=[descriptor])


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimiterProcess]:
    folder = tmp_path_factory.mktemp("limiter")
    rules = folder / "rules"
    rules.mkdir()
    rules_file(rules, NATIVE, "native.yaml")
    rules_file(rules, ENVOY, "envoy.yaml")
    rules_file(rules, readme_block("yaml", "domain:"), "limits.yaml")
    with LimiterProcess(folder, "--rules", str(rules), "--shed", "off") as process:
        yield process


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return run_to_end([sys.executable, "-m", "sluicegate.cli", *words])


def test_it_says_in_one_line_that_it_is_ready(limiter: LimiterProcess) -> None:
    line = limiter.ready_line
    assert f"gRPC, RESP and HTTP on 127.0.0.1:{limiter.port}" in line
    assert "4 rules (version " in line
    assert limiter.log.read_text().startswith(f"{line}\n")


def test_one_port_answers_grpc_resp_and_http_by_the_same_counts(limiter: LimiterProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        stub = rate_limiter_pb2_grpc.RateLimiterStub(channel)
        ask = rate_limiter_pb2.RateLimitRequest(user_id="all doors", resource_path=PLAYBACK)
        assert stub.Check(ask).remaining_tokens == 5
        client = redis.Redis(port=limiter.port)
        answer = client.execute_command("SG.CHECK", "all doors", PLAYBACK)  # type: ignore[no-untyped-call]
        allowed, remaining, *_ = answer
        assert (allowed, remaining) == (1, 4)
        assert limiter.check("all doors", PLAYBACK)["remaining_tokens"] == 3
        for _ in range(3):
            assert stub.Check(ask).allowed
        refused = stub.Check(ask)
        assert not refused.allowed
        assert refused.rule_id == "playback"
        assert 0 < refused.retry_after_ms <= 120_000  # what the window before counted fades slowly
        client.close()


def test_envoys_question_is_answered(limiter: LimiterProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        stub = rls_pb2_grpc.RateLimitServiceStub(channel)
        codes = [stub.ShouldRateLimit(mesh_ask("bob")).overall_code for _ in range(5)]
        assert codes == [1, 1, 1, 2, 2]
        of_readme = [mesh_ask("zoe", domain="edge") for _ in range(2)]
        of_readme[0].hits_addend = 100
        assert [stub.ShouldRateLimit(one).overall_code for one in of_readme] == [1, 2]
        with pytest.raises(grpc.RpcError) as caught:
            stub.ShouldRateLimit(mesh_ask("bob", domain=""))
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "rate limit domain must not be empty"


def test_check_without_rule_is_marked_counted_and_logged(limiter: LimiterProcess) -> None:
    """In each protocol; what a rule applies to has no such mark."""
    before = limiter.metric("sluicegate_limiter_unmatched_total", question="check")
    for query in ("", "?status=http", "?status=auth"):
        assert rule_header(limiter, f"/v1/check{query}", NOWHERE) == "none"
    assert limiter.check("dan", "/nowhere/at/all")["rule_id"] == ""
    assert limiter.metric("sluicegate_limiter_unmatched_total", question="check") == before + 4
    log = limiter.log.read_text()
    assert log.count("no rule matches a check of resource_path '/nowhere/'") == 1
    known = {"user_id": "known", "resource_path": PLAYBACK}
    assert rule_header(limiter, "/v1/check?status=http", known) is None


def test_mesh_request_without_rule_is_marked(limiter: LimiterProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        stub = rls_pb2_grpc.RateLimitServiceStub(channel)
        unmatched = stub.ShouldRateLimit(mesh_ask("bob", domain="misspelt"))
        matched = stub.ShouldRateLimit(mesh_ask("carl"))
    marks = [
        {header.key: header.value for header in answer.request_headers_to_add}
        for answer in (unmatched, matched)
    ]
    assert [one.get("x-ratelimit-rule") for one in marks] == ["none", None]
    assert [one["x-sluicegate-answered"] for one in marks] == ["1", "1"]
    entries = [{"entries": [{"key": "user", "value": "bob"}]}]
    ask = {"domain": "misspelt", "descriptors": entries}
    assert rule_header(limiter, "/json", ask) == "none"
    assert rule_header(limiter, "/json", {**ask, "domain": "edge"}) is None
    assert "'misspelt: user'" in limiter.log.read_text()


def test_request_of_readme_is_counted(limiter: LimiterProcess) -> None:
    (command,) = re.findall(r"`(curl localhost:7070/json [^`]*)`", README.read_text())
    words = shlex.split(command)
    ask = json.loads(words[words.index("-d") + 1])
    ask["descriptors"][0]["entries"][0]["value"] = "reader"  # another test asks about ann
    answers = [limiter.ask("/json", ask) for _ in range(2)]
    assert [status for status, _ in answers] == [200, 200]
    left = [answer["statuses"][0]["limitRemaining"] for _, answer in answers]
    assert left[0] - left[1] == 1


def rule_header(limiter: LimiterProcess, path: str, body: object) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", limiter.port, timeout=60)
    with closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.headers.get("X-RateLimit-Rule")


def test_health_is_told_for_the_service_by_name(limiter: LimiterProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(service="ratelimit")).status == 1
    assert limiter.ask("/healthz")[0] == 200
    assert limiter.ask("/readyz")[0] == 200


def test_the_state_names_what_was_decided(limiter: LimiterProcess) -> None:
    before = limiter.ask("/v1/state")[1]["decisions"]["DEGRADED"]["allowed"]
    limiter.check("somebody", "/nowhere")
    decisions = limiter.ask("/v1/state")[1]["decisions"]
    assert list(decisions) == ["CRITICAL", "DEGRADED", "BEST_EFFORT", "BULK"]
    assert decisions["DEGRADED"]["allowed"] == before + 1


def test_why_tells_why_a_user_was_refused(limiter: LimiterProcess) -> None:
    for _ in range(8):
        limiter.check("ann", PLAYBACK)
    done = command("why", "ann", "--at", limiter.url)
    assert done.returncode == 0, done.stderr
    first, second, *rest = done.stdout.splitlines()
    assert "2 x REFUSED by rule 'playback'; rate_limited: The limit for this key is spent;" in first
    assert "6 x allowed by rule 'playback'" in second
    assert rest == []
    nobody = command("why", "nobody", "--at", limiter.url, "--since", "5m")
    assert nobody.stdout.startswith("nothing is kept about 'nobody' of the last 5m")


def test_the_dashboard_and_the_alerts_ask_only_for_metrics_that_there_are(
    limiter: LimiterProcess, tmp_path: Path
) -> None:
    deploy = Path(__file__).parents[3] / "deploy" / "limiter"
    text = (deploy / "grafana-dashboard.json").read_text() + (deploy / "alerts.yml").read_text()
    names = set(re.findall(r"\bsluicegate_[a-z_]+\b", text))
    with LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, ENVOY), "--dlq",
                        f"files:{tmp_path / 'letters'}") as process:  # fmt: skip
        process.ask("/json", {"domain": "shop", "descriptors": [
            {"entries": [{"key": "user", "value": "ann"}]}]})  # fmt: skip
        page = str(process.ask("/metrics")[1])
    there = set(re.findall(r"^(sluicegate_[a-z_]+)", page, re.MULTILINE))
    there |= set(re.findall(r"^# TYPE (sluicegate_[a-z_]+)", page, re.MULTILINE))
    assert names
    assert names - there == set()
    assert yaml.safe_load((deploy / "alerts.yml").read_text())["groups"]


def test_a_changed_rule_comes_into_force_and_keeps_other_counts(
    tmp_path: Path,
) -> None:
    rules = rules_file(tmp_path, NATIVE)
    with LimiterProcess(tmp_path, "--rules", rules, "--shed", "off") as limiter:
        assert limiter.check("ann", PLAYBACK)["remaining_tokens"] == 5
        limiter.check("ann", "/bulk/x", priority="BULK")
        version = limiter.ask("/v1/rulebook")[1]["version"]
        rules_file(tmp_path, NATIVE.replace("limit: 1000", "limit: 2000"))
        until(lambda: limiter.ask("/v1/rulebook")[1]["version"] != version, "the new rules")
        bulk = limiter.check("ann", "/bulk/x", priority="BULK")
        assert bulk["limit"] == 2000
        assert limiter.check("ann", PLAYBACK)["remaining_tokens"] == 4


def test_a_bad_file_never_replaces_a_good_one(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, NATIVE)
    with LimiterProcess(tmp_path, "--rules", rules) as limiter:
        version = limiter.ask("/v1/rulebook")[1]["version"]
        rules_file(tmp_path, NATIVE.replace("limit: 1000", "limit: many"))

        def last_load() -> dict[str, object] | None:
            load = limiter.ask("/v1/rulebook")[1]["last_load"]
            return load if load["result"] == "refused" else None

        refused = until(last_load, "the bad file seen")
        assert refused["file"] == rules
        assert refused["line"] == 11
        assert "many" in str(refused["reason"])
        assert limiter.ask("/v1/rulebook")[1]["version"] == version
        assert limiter.check("ann", "/bulk/x", priority="BULK")["limit"] == 1000
        assert limiter.metric("sluicegate_limiter_rules_last_load_refused") == 1
        rules_file(tmp_path, NATIVE.replace("limit: 1000", "limit: 3000"))
        limiter.signal(signal.SIGHUP)
        until(
            lambda: limiter.check("ann", "/bulk/x", priority="BULK")["limit"] == 3000,
            "the mended file",
        )


def test_a_bad_file_at_the_start_is_told_with_its_line(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, ENVOY.replace("hour", "fortnight"))
    done = command("limiter", "--listen", "127.0.0.1:0", "--rules", rules)
    assert done.returncode == 2
    assert "rules.yaml: line 4: descriptors[0].rate_limit.unit" in done.stderr
    assert "fortnight" in done.stderr
    assert "Traceback" not in done.stderr


# With these anybody may come, and nothing tells who it is.
OPTIONAL_CERTIFICATE = (
    "--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "a.pem", "--tls-client-optional"
)  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "0.0.0.0:7070"], "--insecure"),
        (["--listen", "0.0.0.0:7070", *OPTIONAL_CERTIFICATE], "so that it knows who asks"),
        (["--listen", "nowhere"], "--listen: 'nowhere'"),
        (["--workers", "2"], "processes cannot share memory"),
        (["--store", "mysql://x"], "--store"),
        (["--tls-cert", "x.pem"], "--tls-key"),
        (["--rls-near-share", "0"], "a share above 0"),
        (["--dlq", "ftp://x"], "files:DIR or kafka://"),
        (["--rules", "/nowhere"], "/nowhere"),
    ],
)
def test_a_wrong_flag_is_one_line_that_says_what_to_do(flags: list[str], message: str) -> None:
    listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
    done = command("limiter", *listen, *flags)
    assert done.returncode in {1, 2}
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_public_address_is_taken_when_insecure_is_said(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    flags = ("--listen", f"0.0.0.0:{port}", "--insecure", "--shed", "off")
    with LimiterProcess(tmp_path, *flags, port=port) as limiter:
        assert limiter.check("ann")["allowed"]


def test_two_files_of_one_domain_are_merged_when_that_is_said(tmp_path: Path) -> None:
    for key in ("a", "b"):
        limit = "{unit: hour, requests_per_unit: 4}"
        text = f"domain: shop\ndescriptors:\n  - key: {key}\n    rate_limit: {limit}\n"
        (tmp_path / f"{key}.yaml").write_text(text)
    done = command("limiter", "--listen", "127.0.0.1:0", "--rules", str(tmp_path))
    assert "--rls-merge-domains" in done.stderr
    flags = ("--rules", str(tmp_path), "--rls-merge-domains", "--rls-near-share", "50%")
    with LimiterProcess(tmp_path, *flags, "--shed", "off") as limiter:
        for key in ("a", "b"):
            ask = {"domain": "shop", "descriptors": [{"entries": [{"key": key, "value": "x"}]}]}
            assert [limiter.ask("/json", ask)[0] for _ in range(5)] == [200] * 4 + [429]
        assert limiter.metric("sluicegate_mesh_near_limit_total", rule="shop.a") == 2


def test_the_config_that_is_printed_starts_the_same_limiter(tmp_path: Path) -> None:
    printed = command(
        "limiter", "--grace-s", "3", "--print-config", SLUICEGATE_LIMITER_KEYS_MAX="5000"
    )
    assert 'keys_max = "5000"' in printed.stdout
    assert "# variable SLUICEGATE_LIMITER_KEYS_MAX" in printed.stdout
    file = tmp_path / "limiter.toml"
    file.write_text(printed.stdout)
    again = command("limiter", "--config", str(file), "--print-config")
    assert again.returncode == 0, again.stderr
    strip = [line.partition("  #")[0].rstrip() for line in printed.stdout.splitlines()]
    assert strip == [line.partition("  #")[0].rstrip() for line in again.stdout.splitlines()]


def test_a_misspelt_variable_is_told() -> None:
    done = command("limiter", "--print-config", SLUICEGATE_LIMITER_STROE="memory:")
    assert done.returncode == 2
    assert "SLUICEGATE_LIMITER_STROE" in done.stderr


def test_help_shows_examples() -> None:
    done = command("limiter", "--help")
    assert "sluicegate limiter --rules rules/" in done.stdout
    assert "--store" in done.stdout


def test_told_to_end_it_ends_in_peace(tmp_path: Path) -> None:
    limiter = LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, NATIVE))
    with limiter:
        limiter.check("ann", PLAYBACK)
        assert limiter.end() == 0
        assert "Traceback" not in limiter.log.read_text()


def test_a_port_that_is_taken_is_one_line(limiter: LimiterProcess) -> None:
    done = command("limiter", "--listen", f"127.0.0.1:{limiter.port}")
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("app", ["limiter", "kv"])
def test_a_store_of_a_misspelt_scheme_is_told_which_there_are(app: str) -> None:
    ended = command(app, "--listen", "127.0.0.1:0", "--store", "redi://cache")
    assert ended.returncode != 0
    assert "--store: 'redi:...' cannot be used" in ended.stderr
    for scheme in ("redis://", "rediss://", "unix://", "redis+cluster://", "redis+sentinel://"):
        assert scheme in ended.stderr


def test_a_log_of_dead_letters_that_nobody_could_write_is_refused_at_the_start() -> None:
    for folder in ("/proc/letters", "/dev/null/letters"):
        ended = command("limiter", "--listen", "127.0.0.1:0", "--dlq", f"files:{folder}")
        assert ended.returncode != 0
        assert f"'{folder}' cannot be used; give a folder that we may write to" in ended.stderr


def test_a_rule_that_does_harm_is_stopped_from_outside_and_comes_back(tmp_path: Path) -> None:
    rules, store = tmp_path / "rules", f"file:{tmp_path / 'glass.json'}"
    rules.mkdir()
    rules_file(rules, NATIVE, "native.yaml")
    rules_file(rules, ENVOY, "envoy.yaml")

    def glass(act: str, *flags: str) -> None:
        done = command("limits", "glass", act, *flags, "--store", store, "--by", "ann")
        assert done.returncode == 0, done.stderr

    flags = ("--rules", str(rules), "--shed", "off", "--glass", store)
    with LimiterProcess(tmp_path, *flags) as limiter, redis.Redis(port=limiter.port) as client:

        def throttled() -> bool:
            answer = client.execute_command("CL.THROTTLE", "ann", 0, 1, 3600)
            return bool(answer[0])

        with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
            mesh = rls_pb2_grpc.RateLimitServiceStub(channel)
            over = rls_pb2.RateLimitResponse.OVER_LIMIT

            def refused() -> list[bool]:
                return [
                    not limiter.check("ann", PLAYBACK)["allowed"],
                    mesh.ShouldRateLimit(mesh_ask("ann")).overall_code == over,
                    throttled(),
                ]

            until(lambda: all(refused()), "all limits are spent", children=[limiter.child])
            glass("break", "--rule", "playback", "--for", "5m", "--why", "the rule is wrong")
            until(
                lambda: refused() == [False, True, True],
                "the limiter has heard of it, and lets through nothing else",
                children=[limiter.child],
            )
            glass("break", "--key", "ann", "--for", "5m", "--why", "their launch")
            until(lambda: not any(refused()), "one caller passes all", children=[limiter.child])
            (stopped, _) = limiter.ask("/v1/state")[1]["glass"]["openings"]
            assert (stopped["rule"], stopped["why"]) == ("playback", "the rule is wrong")
            glass("mend", "--all")
            until(lambda: all(refused()), "it is enforced again", children=[limiter.child])
    log = limiter.log.read_text()
    assert "glass broken: " in log
    assert "stops rule 'playback' for every key" in log
