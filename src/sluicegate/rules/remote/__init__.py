"""Remote: a rulebook that is kept by a server, asked over HTTP as if it lay in a folder here.

`admin` is a `contracts.rule_admin.RuleAdmin` over HTTP; it takes the standard library alone.
`place` is where the server is and what we show it, `exchange` is one question and its answer, and
`told` turns what the server refuses into the errors that it was made from.
"""
