"""Debian's PostgreSQL server, started in a directory of its own, as its own user, perhaps on a host of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

USER = "postgres"


def missing() -> str | None:
    """Why there can be no server here, or None."""
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        return "psycopg2 is not installed"
    if not _servers():
        return "Debian's postgresql is not installed (no /usr/lib/postgresql/*/bin/initdb)"
    if os.geteuid() == 0:  # the server refuses to run as root
        if shutil.which("runuser") is None:
            return "runuser is not installed"
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"there is no user {USER}"
    return None


def _servers() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


class Server:
    """A server in a directory. It listens on a socket there, and on an address if it has one."""

    def __init__(
        self, directory: Path, address: str = "", inside: Sequence[str] = (), options: str = "", fsync: bool = False
    ) -> None:
        """`inside` is a command that runs another one on the host of the address."""
        self.directory, self._inside = directory, inside
        places = f"-c listen_addresses='{address}' -c unix_socket_directories='{directory}'"
        self._options = f"{places} -c fsync={'on' if fsync else 'off'} {options}"
        self._num_databases = 0

    def create(self, network: str = "") -> None:
        """Make the data directory; everybody on the network may come in."""
        self._run("initdb", "--auth=trust", f"--username={USER}", "--no-sync")
        if network:
            with (self.directory / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} trust\n")

    def start(self) -> None:
        self._run("pg_ctl", "--wait", f"--log={self.directory / 'log'}", "-o", self._options, "start")

    def stop(self) -> None:
        """Stop at once, as a crash does."""
        self._run("pg_ctl", "--wait", "--mode=immediate", "stop")

    def new_database(self) -> str:
        """The URL of an empty database."""
        import psycopg2

        self._num_databases += 1
        name = f"trials_{self._num_databases}"
        connection = psycopg2.connect(host=str(self.directory), user=USER, dbname="postgres")
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {name}")
        connection.close()
        return f"postgresql+psycopg2://{USER}@/{name}?host={self.directory}"

    def cpu_seconds(self) -> float:
        """CPU time of the server's processes, those that have ended among them."""
        first = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        ticks = 0
        for pid in (str(first), *children):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15] if pid == str(first) else fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def _run(self, name: str, *arguments: str) -> None:
        as_its_user = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
        binary = str(_servers()[-1].parent / name)
        command = [*self._inside, *as_its_user, binary, "-D", str(self.directory / "data"), *arguments]
        subprocess.run(command, check=True, cwd=self.directory, stdout=subprocess.DEVNULL, timeout=120)


@contextmanager
def server(
    address: str = "", inside: Sequence[str] = (), network: str = "", options: str = "", *, fsync: bool = False
) -> Iterator[Server]:
    """A running server while the context lasts."""
    directory = Path(tempfile.mkdtemp(prefix="cafenet-pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        shutil.chown(directory, USER)
    running = Server(directory, address, inside, options, fsync=fsync)
    try:
        running.create(network)
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
