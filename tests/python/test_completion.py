"""What is generated from the parser: completion, manual pages, examples in the help."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from arenaplan.cli import main, whole_parser
from arenaplan.cli.config import KEYS
from arenaplan.cli.man import page
from arenaplan.cli.parser import COMMANDS, EXAMPLES, GROUPS, Parser


@pytest.fixture(scope="module")
def whole() -> Parser:
    return whole_parser()


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all commands."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options."""
    return [name for name in parser._option_string_actions if name.startswith("--")]


def test_every_command_is_in_one_group_and_has_examples() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    assert set(EXAMPLES) == set(COMMANDS)


def test_every_example_of_the_help_is_a_command_line(whole: Parser) -> None:
    for name, lines in EXAMPLES.items():
        for line in lines:
            words = shlex.split(line.partition(" > ")[0].partition(" < ")[0].partition(" | ")[0])
            assert words[0] == name
            whole.parse_args(words)


def test_every_command_has_the_general_options(whole: Parser) -> None:
    for parser in commands_of(whole).values():
        assert {"--quiet", "--verbose", "--color", "--progress", "--config"} <= set(
            options_of(parser)
        )
        assert "\nexamples:\n" in parser.format_help()


def test_every_key_of_a_configuration_is_an_option_of_its_commands(whole: Parser) -> None:
    parsers = commands_of(whole)
    for key, names in KEYS.items():
        for name in names or COMMANDS:
            assert f"--{key}" in options_of(parsers[name]), (key, name)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(
    shell: str, whole: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name, parser in commands_of(whole).items():
        assert name in text
        for option in options_of(parser):
            assert option.removeprefix("--") in text, (name, option)


def test_bash_completes_commands_options_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "arenaplan.bash"
    script.write_text(capsys.readouterr().out)
    cases = [["ga"], ["gate", "--jun"], ["plan", "--target", "tflm:r"], ["plan", "--effort", "f"]]
    lines = [f"source {script}"]
    for words in cases:
        array = " ".join(map(shlex.quote, ["arenaplan", *words]))
        lines.append(f"COMP_WORDS=({array}); COMP_CWORD={len(words)}; _shtab_arenaplan")
        lines.append('echo "${COMPREPLY[@]}"')
    ran = subprocess.run([bash, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["gate", "--junit", "tflm:reference", "fast"]


def test_a_manual_page_has_every_option(
    whole: Parser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["man", "--all", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert len(list(tmp_path.iterdir())) == len(COMMANDS) + 1
    for name, parser in commands_of(whole).items():
        text = (tmp_path / f"arenaplan-{name}.1").read_text()
        for option in options_of(parser):
            assert option.replace("-", "\\-") in text, (name, option)
    assert main(["man", "plan"]) == 0
    assert capsys.readouterr().out == page("plan")
    assert main(["man", "plan", "--all", str(tmp_path)]) == 2


def test_a_manual_page_is_formatted_without_a_warning() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff")
    command = [groff, "-man", "-Tascii", "-ww", "-rLL=100n"]
    ran = subprocess.run(command, input=page("gate"), capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert "--allow-growth" in ran.stdout
