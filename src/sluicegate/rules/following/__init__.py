"""Following: a node runs what its fleet's rollout says, and goes on running it whatever fails.

`target` says what a rollout means for one node, `held_releases` how it gets the rules of a release,
`last_good` what it keeps on its disk, `fleet_books` what it hands over. `follower` has the threads
that do it, with `listening` and `reporting`; `fleet` reads what all nodes report. Nothing here
gives rollouts.
"""
