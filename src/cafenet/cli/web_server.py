"""The web server of the dashboard."""

import socket
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cafenet.cli.web_guard import WSGIApplication
from cafenet.errors import StoreError


def web_server(host: str, port: int, application: WSGIApplication) -> WSGIServer:
    """Return a server for one user, like Optuna's own.

    Args:
        host: Host name or address to serve on; an address with ":" is IPv6.
        port: Port to serve on.
        application: The WSGI application that answers requests.

    Returns:
        The server, which listens but does not answer requests yet.
    """

    class Server(WSGIServer):
        address_family = _family(host)

    return make_server(host, port, application, Server, _Quiet)


def opening_at(application: WSGIApplication, place: str) -> WSGIApplication:
    """Return an application whose first page is another one, such as the study that somebody wants to see.

    Args:
        application: The application.
        place: Path of the page that `/` leads to.

    Returns:
        The application; all other addresses are answered as before.
    """

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "/") in ("", "/"):
            start_response("302 Found", [("Location", place), ("Content-Length", "0")])
            return []
        return application(environ, start_response)

    return answer


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing, since a line for every request has no use."""


def check_port(host: str, port: int) -> None:
    """Check that a port is free, with a clearer error than the server's own.

    Args:
        host: Host name or address to serve on; an address with ":" is IPv6.
        port: Port to serve on.

    Raises:
        StoreError: If the port is out of range or cannot be used.
    """
    if not 0 < port < 65536:
        raise StoreError(f"--port must lie in 1 to 65535, but is {port}")
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError as error:
        raise StoreError(
            f"{host}:{port} must be free to serve on, but: {error.strerror}; give another --port"
        ) from error
