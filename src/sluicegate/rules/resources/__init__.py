"""Rules for resources: who may ask for what how often, by path, priority and kind of client."""
