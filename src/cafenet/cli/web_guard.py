"""A WSGI wrapper for pages without a login: no other web site may read or change them through the user's browser.

A page of another site can name this machine under a domain of its own (DNS rebinding), which shows in the Host header,
or send a form here, which shows in Origin and Sec-Fetch-Site.
"""

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable
from typing import Any
from urllib.parse import urlsplit

WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application: a function of (environ, start_response) that returns the body."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def allowed_names(host: str, more: Collection[str] = ()) -> frozenset[str]:
    """Return the names under which a server may be asked for.

    Args:
        host: Host that the server listens on.
        more: Further names that the user allows.

    Returns:
        The names: those of the loopback, and for a server that other machines reach also those of this machine.
    """
    names = {host.lower(), *(name.lower() for name in more)}
    if is_loopback(host):
        return frozenset(names | _LOOPBACK)
    return frozenset(names | _LOOPBACK | {socket.gethostname().lower(), socket.getfqdn().lower()})


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine reach a server on this host.

    Args:
        host: Name or address of the host.

    Returns:
        True for localhost and loopback addresses.
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guarded(application: WSGIApplication, host: str, names: Collection[str] = ()) -> WSGIApplication:
    """Wrap an application so that it answers 403 to foreign Host headers and to writes that another site sends.

    Args:
        application: The application.
        host: Host that the server listens on.
        names: Further names under which it may be asked for.

    Returns:
        The wrapped application.
    """
    allowed, takes_addresses = allowed_names(host, names), not is_loopback(host)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        problem = refusal(environ, allowed, takes_addresses)
        if not problem:
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{problem}\n".encode()]

    return answer


def refusal(environ: dict[str, Any], allowed: Collection[str], takes_addresses: bool) -> str:
    """Return why a request is refused.

    Args:
        environ: The WSGI environment of the request.
        allowed: Names under which the server may be asked for.
        takes_addresses: If True, any IP address is allowed as Host, because no other site can claim one as its name.

    Returns:
        The reason, or an empty text if the request is allowed.
    """
    asked = str(environ.get("HTTP_HOST", ""))
    name = (urlsplit(f"//{asked}").hostname or "") if _is_plain(asked) else ""
    if name not in allowed and not (takes_addresses and _is_address(name)):
        return f"the Host header must name this server, but is {asked[:80]!r}; see --allow-host"
    if environ.get("REQUEST_METHOD") in _READS:
        return ""
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site not in (None, "same-origin", "none"):
        return f"changes must come from the dashboard's own page, but Sec-Fetch-Site is {str(site)[:40]!r}"
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and urlsplit(str(origin)).netloc.lower() != asked.lower():
        return f"changes must come from the dashboard's own page, but Origin is {str(origin)[:80]!r}"
    return ""


def _is_plain(host: str) -> bool:
    """Return whether a Host header is a name or an address, perhaps with a port, and nothing else."""
    return all(character.isalnum() or character in ".-_:[]%" for character in host) and host.count("]") <= 1


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
