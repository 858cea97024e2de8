"""quota: proposes quotas from what callers have used, shows why, and files the change as a proposal
of the rulebook, where it is tried before it goes live."""
