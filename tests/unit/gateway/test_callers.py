"""Whose request it is: what a caller writes of itself has no effect, whichever way it is written."""

import pytest

from processors.gateway.callers import Callers
from processors.ports.addresses import address_of, networks_of

TRUSTED = Callers(networks_of(["10.0.0.0/8", "fd00::/8"]))


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("198.51.100.7", ["203.0.113.9"], "198.51.100.7"),  # no proxy of ours
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),  # the left one was written by the caller
        ("10.0.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),  # in a header of its own, too
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7, 10.2.3.4"], "198.51.100.7"),  # two proxies
        ("10.0.0.1", ["10.9.9.9, 198.51.100.7"], "198.51.100.7"),  # nor does a trusted one on the left help
        ("10.0.0.1", ["10.9.9.9, 10.2.3.4"], "10.9.9.9"),  # one of ours asks
        ("10.0.0.1", ["203.0.113.9, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, unknown, 10.2.3.4"], "10.2.3.4"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", ['"[2001:db8::7]:443"'], "2001:db8::7"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.7"], "198.51.100.7"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
        ("unknown", ["203.0.113.9"], "unknown"),
    ],
)
def test_h10_the_header_counts_from_trusted_proxies_only_and_from_the_right(
    peer: str, forwarded: list[str], caller: str
) -> None:
    assert TRUSTED.caller(peer, forwarded) == caller


def test_h10_without_trusted_proxies_nobody_is_believed() -> None:
    assert Callers().caller("10.0.0.1", ["203.0.113.9"]) == "10.0.0.1"
    assert not Callers().is_proxy("10.0.0.1")


@pytest.mark.parametrize("text", ["", "a" * 10_000, "1.2.3", "1.2.3.4.5", "[::1", "::1]", "\0", "é", "1.2.3.4/8"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert address_of(text) is None or text == "[::1"


def test_a_network_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match=r"'203\.0\.113\.7/24' is no network such as"):
        networks_of(["10.0.0.0/8", "203.0.113.7/24"])
