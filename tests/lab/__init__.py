"""The lab tried: its world, its modes, its known answers."""
