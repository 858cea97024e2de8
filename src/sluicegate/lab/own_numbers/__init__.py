"""Own numbers: a station of a user's own, said in flags or in a short TOML file, and what becomes
of it with what ships and with baselines."""
