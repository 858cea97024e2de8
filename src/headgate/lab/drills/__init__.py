"""Drills: rigs played with real processes and sockets on loopback, in real time.

What a world simulates, a drill does: its figures stand beside those of the simulation, and where
the two differ, the simulation has something to learn. A drill takes as long as it says, and wants
the machine for itself.
"""
