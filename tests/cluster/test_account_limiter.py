"""Nodes that are masters of each other's accounts, on one hand-moved clock."""

from __future__ import annotations

import pytest

from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.errors import BadValue
from sluicegate.policies.suppression.suppress import SuppressSettings
from sluicegate.testing import SeededChance
from tests.cluster.world import START_US, L, Nodes, limit_of
from tests.prove.seeds import first


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_each_account_is_held_to_its_limit_wherever_its_master_is(loss: float) -> None:
    nodes = Nodes(loss=loss)
    rates = {"calm": 0.95 * L, "tenfold": 10.0 * L, "half more": 1.5 * L}
    nodes.run(12, rates)
    masters = {nodes.alive["n0"].master_of(account) for account in rates}
    assert len(masters) > 1
    for node in nodes.alive.values():
        assert {node.master_of(account) for account in rates} == masters
    assert nodes.suppressed["calm"] == 0
    assert 0.95 <= nodes.rate("tenfold", 4) <= 1.05
    assert 0.95 <= nodes.rate("half more", 3) <= 1.05


@pytest.mark.parametrize(
    ("times", "conforms_s", "settled_s"), [(1.2, 5, 12), (3.0, 0, 3), (10.0, 0, 3)]
)
def test_a_step_of_any_size_is_held_when_it_does_not_conform_any_more_and_not_before(
    times: float, conforms_s: int, settled_s: int
) -> None:
    """At 1.2 times the limit a burst of a second lasts five."""
    nodes = Nodes()
    nodes.run(3, {"a": 0.8 * L})
    nodes.run(conforms_s, {"a": times * L})
    assert nodes.suppressed["a"] == 0
    nodes.run(settled_s - conforms_s, {"a": times * L})
    for _ in range(4):  # each second
        nodes.run(1, {"a": times * L}, spread=nodes.names[:1] if times == 3 else ())
        assert 0.9 <= nodes.rate("a", 1) <= 1.1


@pytest.mark.parametrize(("on_s", "off_s"), first(1, [(0.1, 0.4), (0.3, 0.7), (1.0, 1.0)]))
def test_pulses_that_are_over_before_the_news_of_them_pass_no_more_than_the_limit(
    on_s: float, off_s: float
) -> None:
    """On average, and beyond that what the first had before the news; who conforms is let go."""
    nodes = Nodes()
    pulses = round(20 / (on_s + off_s))
    for _ in range(pulses):
        nodes.run(on_s, {"a": 5.0 * L * (on_s + off_s) / on_s})
        nodes.run(off_s, {"a": 0.0})
    assert 0.87 <= nodes.rate("a", 10) <= 1.02
    assert nodes.beyond("a") <= 1 + 2.5, "a burst of one, and what a pulse has before its news"
    nodes.run(4, {"a": 0.99 * L})
    before = nodes.suppressed["a"]
    nodes.run(5, {"a": 0.99 * L})
    assert nodes.suppressed["a"] == before


def test_a_pulse_of_which_there_is_no_news_passes_a_burst_and_the_limit_at_each_node() -> None:
    """Times the fuse's two. No less can be: an account that conforms may come to any of them."""
    passed = {}
    for ratio in (2, 0):
        nodes = Nodes(loss=1.0, node=SuppressSettings(fuse_ratio=ratio))
        nodes.run(0.2, {"a": 100.0 * L})
        passed[ratio] = sum(nodes.admitted["a"]) / L
    assert 8 <= passed[2] <= 5 * 2 * (1 + 0.2)
    assert passed[0] >= 15, "the control; one node is its own master, and hears itself"


def test_a_step_that_has_lasted_is_no_debt_when_it_ends() -> None:
    nodes = Nodes()
    nodes.run(20, {"a": 10.0 * L})
    before = nodes.suppressed["a"]
    nodes.run(4, {"a": 0.9 * L})
    assert nodes.suppressed["a"] - before <= 0.6 * L, "of a second, until its news"


def test_who_let_too_much_in_at_once_is_let_go_when_it_conforms() -> None:
    """What was let in beyond the limit is not taken back from traffic within it."""
    nodes = Nodes()
    nodes.run(0.1, {"a": 150.0 * L})
    assert sum(nodes.admitted["a"]) > 8 * L, "or nothing is remembered"
    nodes.run(4, {"a": 0.99 * L})
    before = nodes.suppressed["a"]
    nodes.run(5, {"a": 0.99 * L})
    assert nodes.suppressed["a"] == before


def test_who_conforms_is_never_rejected_though_members_come_and_go() -> None:
    nodes = Nodes()
    rates = {f"account {number}": 0.9 * L for number in range(4)}
    nodes.run(2, rates)
    for turn in range(8):
        name = nodes.names[turn % 5]
        del nodes.alive[name]
        nodes.run(0.3, rates)
        nodes.tell([one for one in nodes.names if one != name])
        nodes.run(0.7, rates)
        nodes.start(name, boot=2 + turn)
        nodes.tell(nodes.names)
        nodes.run(1, rates)
    assert nodes.suppressed.total() == 0


@pytest.mark.parametrize("seed", first(1, [1, 2]))
def test_a_master_that_dies_leaves_nobody_unlimited(seed: int) -> None:
    """Also the second time, when its successor has an account of old."""
    nodes = Nodes(seed=seed)
    rates = {"a": 10.0 * L, "b": 10.0 * L}
    nodes.run(6, rates)
    master = nodes.alive["n0"].master_of("a")
    others = [name for name in nodes.names if name != master]
    for boot in (2, 3):
        died = len(nodes.admitted["a"])
        del nodes.alive[master]
        nodes.run(1.5, rates)  # nobody knows yet
        nodes.tell(others)
        nodes.run(6, rates)
        for account in rates:
            assert nodes.highest(account, died, 1) <= 1.5
            assert 0.9 <= nodes.rate(account, 3) <= 1.05
        nodes.start(master, boot=boot)
        back = len(nodes.admitted["a"])
        nodes.tell(nodes.names)
        nodes.run(6, rates)
        for account in rates:
            assert nodes.highest(account, back, 1) <= 1.5
            assert 0.95 <= nodes.rate(account, 3) <= 1.05


@pytest.mark.parametrize("stood_s", [0.2, 1.0, 1.5, 5.0])
def test_standstill_of_master_is_no_silence_of_others(stood_s: float) -> None:
    """It took all others for cut off, and told them so: 0.1 of the limit for three seconds."""
    nodes = Nodes()
    rates = {"a": 10.0 * L}
    nodes.run(8, rates)
    nodes.standing = {nodes.alive["n0"].master_of("a")}
    nodes.run(stood_s, rates)
    nodes.standing = set()
    nodes.run(0.2, rates)
    for _ in range(4):
        nodes.run(1, rates)
        assert 0.8 <= nodes.rate("a", 1) <= 1.2


@pytest.mark.parametrize("times", first(1, [2.0, 10.0]))
@pytest.mark.parametrize("master", first(1, [4, 0]))  # on the smaller side, and on the other
def test_in_a_divided_cluster_the_sides_admit_the_limit_together(master: int, times: float) -> None:
    nodes = Nodes()
    first = nodes.alive["n0"]
    names = (f"account {number}" for number in range(100))
    account = next(name for name in names if first.master_of(name) == nodes.names[master])
    rates = {account: times * L}
    nodes.run(20, rates)
    parted = len(nodes.admitted[account])
    sides = [nodes.names[:3], nodes.names[3:]]
    nodes.cut = set(sides[1])
    nodes.run(1, rates)
    for side in sides:
        for name in side:
            nodes.alive[name].change_live(side, nodes.now_us)
    assert first.master_of(account) in sides[0]
    assert nodes.alive["n4"].master_of(account) == nodes.names[master]
    nodes.run(65, rates)  # longer than any node is remembered that says nothing
    if times > 5:
        assert nodes.highest(account, parted, 1) <= 1.5
    assert 0.9 <= nodes.rate(account, 30) <= 1.05
    nodes.cut = set()
    healed = len(nodes.admitted[account])
    for node in nodes.alive.values():
        node.change_live(nodes.names, nodes.now_us)
    nodes.run(8, rates)
    if times > 5:
        assert nodes.highest(account, healed, 1) <= 1.5
        assert 0.95 <= nodes.rate(account, 4) <= 1.05


@pytest.mark.parametrize(("dead", "least"), [(True, 0.95), (False, 0.7)])
def test_the_part_of_a_node_that_is_dead_is_the_others_and_of_one_that_may_serve_is_not(
    dead: bool, least: float
) -> None:
    nodes = Nodes()
    nodes.run(6, {"a": 10.0 * L})
    gone = nodes.alive["n0"].master_of("a")
    others = [name for name in nodes.names if name != gone]
    del nodes.alive[gone]
    for node in nodes.alive.values():
        node.change_live(others, nodes.now_us, [gone] if dead else [])
    nodes.run(5, {"a": 10.0 * L})
    assert least <= nodes.rate("a", 3) <= least + 0.12


def test_a_node_that_reports_is_not_cut_off_though_it_does_not_answer() -> None:
    """Found while members change each second: of two nodes one is master, and cannot be heard."""
    nodes = Nodes(2)
    master = nodes.alive["n0"]
    account = next(name for name in map(str, range(50)) if master.master_of(name) == "n0")
    nodes.run(2, {account: 0.9 * L}, spread=["n1"])
    master.change_live(["n0"], nodes.now_us)
    nodes.run(3, {account: 0.9 * L}, spread=["n1"])
    assert nodes.suppressed[account] == 0
    nodes.cut = {"n1"}  # the control: now it may have a master of its own
    nodes.run(4, {account: 0.9 * L}, spread=["n0"])
    assert 0.45 <= nodes.rate(account, 2) <= 0.55


def test_a_master_that_restarts_at_once_is_believed_again() -> None:
    nodes = Nodes()
    nodes.run(20, {"a": 10.0 * L})
    master = nodes.alive["n0"].master_of("a")
    nodes.start(master, boot=2)
    nodes.tell(nodes.names)
    back = len(nodes.admitted["a"])
    nodes.run(4, {"a": 10.0 * L})
    assert nodes.highest("a", back, 1) <= 1.5
    assert 0.95 <= nodes.rate("a", 2) <= 1.05
    nodes.run(5, {"a": 0.5 * L})
    assert nodes.rate("a", 2) >= 0.45  # its word that all is well counts too
    assert all(node.factor("a", nodes.now_us) == 0.0 for node in nodes.alive.values())


def test_an_account_at_rest_is_let_go_by_its_new_master_too() -> None:
    nodes = Nodes()
    nodes.run(5, {"a": 10.0 * L})
    master = nodes.alive["n0"].master_of("a")
    del nodes.alive[master]
    nodes.tell([name for name in nodes.names if name != master])
    nodes.run(30, {"a": 0.0})
    assert all(node.factor("a", nodes.now_us) == 0.0 for node in nodes.alive.values())


def test_a_node_that_has_nothing_of_an_account_any_more_takes_no_part_of_it() -> None:
    nodes = Nodes()
    nodes.run(5, {"a": 3.0 * L, "b": 1.0})
    # All moves to one node; the others are idle, not cut off.
    nodes.run(70, {"a": 3.0 * L}, spread=["n0"])
    assert 0.95 <= nodes.rate("a", 20) <= 1.05


def test_messages_go_where_there_is_something_to_say() -> None:
    nodes = Nodes(20)
    account = "lonely"
    master = nodes.alive["n0"].master_of(account)
    node = next(name for name in nodes.names if name != master)
    nodes.run(10, {account: 10.0}, spread=[node])
    # A report every 50 ms while something is attempted, an answer to each; nobody else speaks.
    assert 100 <= nodes.messages <= 2 * 10 * 20 + 2
    nodes.run(61, {account: 0.0})
    nodes.run(1, {account: 0.0})
    before = nodes.messages
    nodes.run(5, {account: 0.0})
    assert nodes.messages == before


def test_a_node_names_itself_among_the_members() -> None:
    limiter = AccountLimiter("n0", 1, limit_of, SeededChance(1), START_US)
    with pytest.raises(BadValue, match="name this node, 'n0', too"):
        limiter.change_members(["n1", "n2"])
    assert list(limiter.members) == ["n0"]
