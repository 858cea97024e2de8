"""A tenth of the shapes of `sluicegate.lab.zoo`, in real time on real servers and engines."""
