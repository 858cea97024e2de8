"""The rulebook: rules as a living thing, from a proposal to a fleet that runs them."""
