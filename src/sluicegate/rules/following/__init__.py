"""Following: a node runs what its fleet's orders say, and goes on running it whatever fails.

`choosing` says what orders mean for one node, `holding` how it comes by the rules of an edition,
`last_good` what it keeps on its disk, `fleet_books` what it hands over. `follower` has the threads
that do it, with `listening` and `reporting`; `fleet` reads what all nodes report. Nothing here
gives orders.
"""
