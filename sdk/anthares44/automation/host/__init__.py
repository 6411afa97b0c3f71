"""The step host: one process that runs the bodies and steps of one bundle for an executor.

Start it with `python -m anthares44.automation.host [descriptor]`, a connected stream socket as file
descriptor 3, or as the one that the argument names.
"""
