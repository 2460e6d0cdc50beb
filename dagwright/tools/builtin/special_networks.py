"""Public addresses: the special-purpose registries of IANA as a table.

The table replaces `is_global` of `ipaddress`, which lacks entries in some Python releases. If several networks contain
an address, the longest prefix decides: the registries list exceptions to a network as longer prefixes.

Source: https://www.iana.org/assignments/iana-ipv4-special-registry (RFC 6890),
https://www.iana.org/assignments/iana-ipv6-special-registry,
https://www.iana.org/assignments/ipv6-address-space (2000::/3 is all of global unicast),
https://www.iana.org/assignments/multicast-addresses,
https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16.
"""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

REACHABLE_NETWORKS = (
    "192.0.0.9/32",  # Port Control Protocol anycast, RFC 7723
    "192.0.0.10/32",  # TURN anycast, RFC 8155
    "192.31.196.0/24",  # AS112-v4, RFC 7535
    "192.52.193.0/24",  # AMT, RFC 7450
    "192.175.48.0/24",  # direct delegation AS112 service, RFC 7534
    "2001:1::1/128",  # Port Control Protocol anycast, RFC 7723
    "2001:1::2/128",  # TURN anycast, RFC 8155
    "2001:1::3/128",  # DNS-SD service registration anycast, RFC 9665
    "2001:3::/32",  # AMT, RFC 7450
    "2001:4:112::/48",  # AS112-v6, RFC 7535
    "2001:20::/28",  # ORCHIDv2, RFC 7343
    "2001:30::/28",  # drone remote ID, RFC 9374
    "2620:4f:8000::/48",  # direct delegation AS112 service, RFC 7534
)
"""Special-purpose networks that are globally reachable."""

UNREACHABLE_NETWORKS = (
    "0.0.0.0/8",  # this network, RFC 791
    "10.0.0.0/8",  # private use, RFC 1918
    "100.64.0.0/10",  # shared address space, RFC 6598
    "127.0.0.0/8",  # loopback, RFC 1122
    "168.63.129.16/32",  # Azure's platform services on every Azure machine; a public address that is in no registry
    "169.254.0.0/16",  # link local, RFC 3927
    "172.16.0.0/12",  # private use, RFC 1918
    "192.0.0.0/24",  # IETF protocol assignments, RFC 6890
    "192.0.2.0/24",  # documentation TEST-NET-1, RFC 5737
    "192.88.99.0/24",  # deprecated 6to4 relay anycast, RFC 7526
    "192.168.0.0/16",  # private use, RFC 1918
    "198.18.0.0/15",  # benchmarking, RFC 2544
    "198.51.100.0/24",  # documentation TEST-NET-2, RFC 5737
    "203.0.113.0/24",  # documentation TEST-NET-3, RFC 5737
    "224.0.0.0/4",  # multicast, RFC 5771
    "240.0.0.0/4",  # reserved, RFC 1112; includes the limited broadcast address, RFC 8190
    "::/0",  # everything outside of global unicast, RFC 4291
    "2001::/23",  # IETF protocol assignments, RFC 2928
    "2001:2::/48",  # benchmarking, RFC 5180
    "2001:10::/28",  # deprecated ORCHID, RFC 4843
    "2001:db8::/32",  # documentation, RFC 3849
    "3fff::/20",  # documentation, RFC 9637
)
"""Networks that are not globally reachable; `::/0` contains all IPv6 networks outside of 2000::/3."""

_GLOBAL_UNICAST = "2000::/3"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Well-known prefix of RFC 6052; the local-use prefix 64:ff9b:1::/48 of RFC 8215 is not reachable."""

_NETWORKS = sorted(
    [
        *((ipaddress.ip_network(network), True) for network in (*REACHABLE_NETWORKS, _GLOBAL_UNICAST)),
        *((ipaddress.ip_network(network), False) for network in UNREACHABLE_NETWORKS),
    ],
    key=lambda entry: -entry[0].prefixlen,
)
"""Pairs of a network and whether it is reachable; the longest prefix first."""


def is_public(address: Address) -> bool:
    """Return whether an address is reachable on the public internet.

    If an IPv6 address embeds an IPv4 address, the IPv4 address decides.
    """
    embedded_ipv4 = embedded_address(address)
    if embedded_ipv4 is not None:
        return is_public(embedded_ipv4)
    return next((is_reachable for network, is_reachable in _NETWORKS if address in network), True)


def embedded_address(address: Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that traffic to an IPv6 address goes to: IPv4-mapped, 6to4, Teredo or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
