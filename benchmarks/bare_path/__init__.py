"""The bare path: W3 with nothing but batching between, which bounds what any service of this shape can do here.

Events topic, ingest, commands topic, executor with a step host in a child process, run-events topic: one commit a
batch, durability on. No fences, lanes, triggers, keys, retries, timers or errors. A measure, not a design.
"""
