"""Schemas that projects declare for their event types: read with every bound known, compiled once, and asked of each
event's data. JSON Schema is checked as it is; Avro is put into the same words first, so there is one way to check.
"""
