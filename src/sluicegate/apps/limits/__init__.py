"""The command `sluicegate limits`: what limits do, before and while they are in force.

`check` explains a rules file and advises, `try` runs the real guard on virtual time: both only
read, and neither talks to a store. `glass` stops enforcement for a while, on the record.
"""
