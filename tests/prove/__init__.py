"""The long proofs: thousands of seeds. `make prove` runs all, CI a slice whose seed rotates.

SLUICEGATE_PROVE=full|slice picks how many, SLUICEGATE_PROVE_SEED where to start; a failure names
its seed. Without SLUICEGATE_PROVE these do not run.
"""
