"""The web server of the dashboard."""

import socket
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cafenet.cli.web_guard import WSGIApplication
from cafenet.errors import StoreError


def web_server(host: str, port: int, application: WSGIApplication) -> WSGIServer:
    """A server for one user, as Optuna's own."""

    class Server(WSGIServer):
        address_family = _family(host)

    return make_server(host, port, application, Server, _Quiet)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A line for every request says nothing to anybody."""


def check_port(host: str, port: int) -> None:
    """It must be free, which the server would say less clearly."""
    if not 0 < port < 65536:
        raise StoreError(f"--port must lie in 1 to 65535, but is {port}")
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError as error:
        raise StoreError(
            f"{host}:{port} must be free to serve on, but: {error.strerror}; give another --port"
        ) from error
