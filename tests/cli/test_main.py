"""What the command itself does, whatever its subcommand."""

import warnings

import pytest

from cafenet.cli import main as main_module
from cafenet.cli.main import main
from cafenet.errors import CafeNetWarning


def test_a_bare_command_shows_its_help(capsys):
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: cafenet")
    assert "start here:" in out
    assert "inspect" in out
    assert err == ""


def test_a_flag_without_a_command_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--nonsense"])
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


def test_warnings_of_the_package_are_one_line_each(monkeypatch, capsys):
    def warning(argv) -> None:
        for _ in range(2):
            warnings.warn("the file takes batches of 2 only", CafeNetWarning, stacklevel=1)

    monkeypatch.setattr(main_module, "_run", warning)
    before = warnings.showwarning
    assert main([]) == 0
    assert capsys.readouterr().err == "warning: the file takes batches of 2 only\n" * 2
    assert warnings.showwarning is before


def test_other_warnings_stay_as_python_shows_them(monkeypatch):
    monkeypatch.setattr(main_module, "_run", lambda argv: warnings.warn("from elsewhere", UserWarning, stacklevel=1))
    with pytest.warns(UserWarning, match="from elsewhere"):
        main([])
