"""Which hosts are this machine alone. A leaf; both ends import it."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host's address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
