"""Drills: rigs played with real processes and sockets on loopback, in real time.

What a world simulates, a drill does: its figures stand beside those of the simulation, and where
the two differ, the simulation is to be corrected. A drill takes as long as it says, and wants
the machine for itself.

`station` plays a rig of the lab, as a candidate in a scenario. All others are about the dispatcher,
and are what `sluicegate lab drill` plays: `load` says what is sent, `generator` sends it, `record`
counts what became of it, `dispatcher` starts what it is sent to, `report` shows the outcome.
"""
