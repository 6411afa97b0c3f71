"""Which addresses a connector may connect to."""

import pytest

from processors.adapters.http.egress import CheckedResolver, Egress
from schemas.errors import Refused

NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "::",
    "224.0.0.1",
    "ff02::1",
]
PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "::1",
    "::ffff:127.0.0.1",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "fec0::1",
    "255.255.255.255",
    "240.0.0.1",
    "64:ff9b::7f00:1",
]
PUBLIC = ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("allow_private", [True, False])
def test_link_local_and_metadata_are_never_allowed(address: str, allow_private: bool):
    with pytest.raises(Refused) as refusal:
        Egress(allow_private=allow_private).check(address)
    assert refusal.value.code == "E_EGRESS_DENIED"


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_the_setting(address: str):
    Egress(allow_private=True).check(address)
    with pytest.raises(Refused, match="allow_private_egress"):
        Egress().check(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str):
    Egress().check(address)


def test_a_host_that_is_a_name_is_left_to_the_resolver():
    Egress().check_host("localhost")
    with pytest.raises(Refused):
        Egress().check_host("127.0.0.1")


async def test_a_name_that_leads_to_a_private_address_is_refused():
    resolver = CheckedResolver(Egress())
    with pytest.raises(Refused) as refusal:
        await resolver.resolve("localhost", 80)
    assert refusal.value.code == "E_EGRESS_DENIED"
    assert await CheckedResolver(Egress(allow_private=True)).resolve("localhost", 80)
