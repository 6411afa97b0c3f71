"""The REST client of the command line: standard library only, so that a command starts quickly."""

from ops.client.exchange import Exchange, service_address
from ops.client.rest import TERMINAL, Answer, Client, Signed, error_of
from ops.client.stream import StreamEvent

__all__ = ["TERMINAL", "Answer", "Client", "Exchange", "Signed", "StreamEvent", "error_of", "service_address"]
