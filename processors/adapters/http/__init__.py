"""Outbound HTTP: what YAML steps call through connectors."""

from processors.adapters.http.connector import FindConnector, HttpConnector, open_http_connector

__all__ = ["FindConnector", "HttpConnector", "open_http_connector"]
