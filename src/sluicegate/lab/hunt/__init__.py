"""The hunt: random rigs, loads and faults against the production policies, looking for a break.

setup        what is played, as a value and as a file
draws        the setup of a seed
record       what a play leaves behind
server, reads, client, cluster        the stages: policies composed as users compose them
invariants   what must hold of every record, one a function
shrink       a smaller setup that breaks the same
search       the stages by name, and seed after seed played on them
command      `sluicegate lab hunt`
"""
