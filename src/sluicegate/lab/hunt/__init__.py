"""The hunt: random rigs, loads and faults against the production policies, looking for a break.

setup        what is played, as a value and as a file
draws        a seed's setup
tale         what a play leaves behind
server, reads, client, cluster        the stages: policies composed as users compose them
invariants   what must hold of every tale, one a function
shrink       a smaller setup that breaks the same
search       seed after seed
command      `sluicegate lab hunt`
"""
