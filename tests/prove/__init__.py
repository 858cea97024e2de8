"""The long proofs: thousands of seeds. `make prove` runs all, CI a slice whose seed rotates.

HEADGATE_PROVE=full|slice picks how many, HEADGATE_PROVE_SEED where to start; a failure names its
seed. Without HEADGATE_PROVE these do not run.
"""
