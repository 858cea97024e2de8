"""Examples: what stands under the help of `sluicegate rules` and of each of its verbs."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = """\
examples:
  sluicegate rules init book --rules rules/ --alone       a rulebook of your own
  sluicegate rules propose rules/api.yaml -m "Let exports have twice as much"
  sluicegate rules approve 3f2a91 && sluicegate rules publish 3f2a91 --wait 2
  sluicegate rules status                                 what every node runs
  sluicegate rules rollback 6 --reason "exports starved playback"
  sluicegate rules set play.limit=500 --reason "INC-214"  in one step, for who may
  sluicegate rules propose --help                         the flags of a verb, with examples

A rulebook is a folder (--rulebook book, or SLUICEGATE_RULEBOOK), or a server that keeps one
(--rulebook https://rules:7075, with SLUICEGATE_TOKEN). Nodes follow it:
  sluicegate limiter --rulebook files:book/blobs --rulebook-keys book/keys/signing.pub.pem
"""
# By verb.
OF_VERBS: Final = {
    "init": """\
examples:
  sluicegate rules init book                      an empty one: git, blobs, events and keys in book/
  sluicegate rules init book --rules rules/       these rules are its first version
  sluicegate rules init book --rules rules/ --alone
  sluicegate rules init book --repository /srv/git/limits.git     what is on its branch main
  sluicegate rules init book --rules rules/ --blobs 's3://rules/prod?region=eu-west-1'

--alone lets one person propose and approve. Everything else is said in book/rulebook.toml. Where
making it was interrupted, the same command goes on.
""",
    "lint": """\
examples:
  sluicegate rules lint rules/
  sluicegate rules lint rules/api.yaml envoy/ --json
  sluicegate rules lint ratelimit/ --semantics envoy

exit code: 0 they can be used; 1 they cannot, and each problem is told; 2 asked wrongly
""",
    "convert": """\
examples:
  sluicegate rules convert limits.yaml -o rules.yaml
  sluicegate rules convert limits.toml            print it, to compare

Comments and order stay where the text can be edited; `sluicegate limits check` explains the result.

exit code: 0 converted; 1 it cannot be read or written; 2 it is not of the old format, or is invalid
""",
    "list": """\
examples:
  sluicegate rules list                           the latest proposals
  sluicegate rules list --state open
  sluicegate rules list --releases                what has been live
  sluicegate rules list --files --at 6            the files of release 6
""",
    "show": """\
examples:
  sluicegate rules show 3f2a91                      who, what, why, and what befell it
  sluicegate rules show 3f2a91 --html report.html   the report of the gate, as a page
  sluicegate rules show api.yaml --at 6             a file as it was
""",
    "diff": """\
examples:
  sluicegate rules diff 3f2a91                    from live to a proposal
  sluicegate rules diff 6 7                       from one release to the next

exit code: 0 whether or not they differ
""",
    "propose": """\
examples:
  sluicegate rules propose api.yaml -m "Let exports have twice as much" --reason "INC-214"
  sluicegate rules propose rules/ -m "New quarter"        a folder: its files take their places
  sluicegate rules propose --remove old.yaml -m "Drop unused rules" --confirm
  sluicegate rules propose mesh.yaml --under envoy --base 6f1c22 -m "..."

What is wrong with the files is told, and nothing is proposed. A file that has changed in the
rulebook since --base is a conflict.
""",
    "set": """\
examples:
  sluicegate rules set play.limit=500 --reason "INC-214: playback starves"
  sluicegate rules set export.mode=off --reason "INC-214" --confirm --wait 20
  sluicegate rules set quota:reports.limit=10 --reason "one caller floods us"
  sluicegate rules set degrade.recommendations=always --reason "INC-214"
  sluicegate rules set shop/tenant=acme.rate_limit.requests_per_unit=20 --reason "INC-215"

It proposes, approves and publishes, for who may do all three: approving one's own change takes
own_approval. Else it stays proposed, and what a second person types is printed. A change that the
gate fails takes a second person in any case.

exit code: 0 it is live; 1 it is proposed and waits for somebody else; 2 asked wrongly
""",
    "shadow": """\
examples:
  sluicegate rules shadow 3f2a91                  try a proposal on what has been captured
  sluicegate rules shadow --rules live/ --rules new/ --capture capture/ --key capture.key
  sluicegate rules shadow --rules live/ --rules new/ --envoy-log access.json \\
      --map user=x-user-id --html report.html
  sluicegate rules shadow --rules envoy/ --rules new/ --envoy-log access.json \\
      --domain edge --descriptor user=x-user-id --descriptor generic_key==all,user=x-user-id
  sluicegate rules shadow --rules live/ --rules new/ --csv log.csv --unit ms --bad-rows 100

exit code: 0 it may go live; 1 it may not; 3 it was not judged
""",
    "approve": """\
examples:
  sluicegate rules approve 3f2a91
  sluicegate rules approve 3f2a91 --publish
  sluicegate rules approve 3f2a91 --override "a new service, nothing captured yet"

Whoever proposed it may not approve it, unless own_approval is on. What the gate failed takes
--override, always by somebody else; the audit keeps who and why:
  sluicegate rules approve 3f2a91 --publish --override "INC-214: playback is down, login can wait"
""",
    "reject": """\
examples:
  sluicegate rules reject 3f2a91 --reason "the nightly export needs more"
""",
    "publish": """\
examples:
  sluicegate rules publish 3f2a91
  sluicegate rules publish 3f2a91 --wait 20 --timeout 10  until 20 nodes run it

exit code: 0 it is live (and, with --wait, runs); 1 it is not, or nodes cannot hear of it yet; 2
asked wrongly
""",
    "canary": """\
examples:
  sluicegate rules canary 3f2a91                          for 1% of the callers
  sluicegate rules canary 3f2a91 --share 25%
  sluicegate rules canary 3f2a91 --share 10% --by nodes
  sluicegate rules canary 3f2a91 --share 0                take it back

A server widens it step by step (canary_steps), and takes it back by itself if CRITICAL work fares
worse under it.
""",
    "status": """\
examples:
  sluicegate rules status
  sluicegate rules status --release 7 --wait 20           until 20 nodes run release 7
  sluicegate rules status --json

Three numbers: a revision is a commit (3f2a91), a release is a revision compiled and signed (7), a
rollout says which releases the nodes run (12). In JSON they are commit, version and orders.number.
""",
    "rollback": """\
examples:
  sluicegate rules rollback 6 --reason "exports starved playback"
  sluicegate rules rollback 6 --reason "..." --wait 20

The rules of release 6 become a new release; nothing is taken out of the history.
""",
    "pin": """\
examples:
  sluicegate rules pin edge-7 6 --reason "to compare"
  sluicegate rules pin edge-7 0 --reason "compared"
""",
    "forget": """\
examples:
  sluicegate rules forget edge-7 --reason "its machine is sold"

Only a node that has stopped reporting can be removed; it is back with its next report. By itself a
node vanishes from the status after node_gone_s (a day).
""",
    "audit": """\
examples:
  sluicegate rules audit --count 50
  sluicegate rules audit --json
""",
    "import-envoy": """\
examples:
  sluicegate rules import-envoy ratelimit/config --dry-run  what it says, and what counts otherwise
  sluicegate rules import-envoy ratelimit/config -m "Take over the mesh's limits"

The files become a proposal. With Envoy's semantics every counter is by itself; with ours a request
counts in all of its limits or in none.
""",
    "serve": """\
examples:
  sluicegate rules serve --rulebook book                  the admin API on 127.0.0.1:7075
  sluicegate rules serve --rulebook book --listen 0.0.0.0:7075 --access people.toml \\
      --tls-cert chain.pem --tls-key key.pem
  sluicegate rules serve --rulebook book --print-config

Pushes to the branch become proposals, canaries are widened or taken back, and what was published
is announced. Who may do what is said in the file of --access; grants are read-rules, propose and
approve. Variables are named SLUICEGATE_RULES_ and the flag.
""",
}
