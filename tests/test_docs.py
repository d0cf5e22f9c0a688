"""README and wheel: what is written is so, and what is shipped runs outside the checkout."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dualtrace_local import __version__
from dualtrace_local.cli import main
from dualtrace_local.cli.reference import END, START, commands, renewed

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_screen_names_both_scripts_and_they_can_be_run():
    first_screen = "\n".join(README.splitlines()[:40])

    for script in ("scripts/quickstart.sh", "scripts/test.sh"):
        assert script in first_screen
        assert (ROOT / script).stat().st_mode & 0o111


@pytest.mark.parametrize("name", dict(commands(main, "dualtrace")))
def test_every_command_stands_in_the_reference(name):
    assert f"\n### {name}\n" in README[README.index(START) : README.index(END)]


def test_the_reference_is_made_from_the_commands():
    assert renewed(README) == README, "run: python -m dualtrace_local.cli.reference README.md"


def test_commands_shown_in_the_readme_exist():
    known = {name.removeprefix("dualtrace ") for name in dict(commands(main, "dualtrace"))}
    shown = set(re.findall(r"^dualtrace ([a-z]+(?: [a-z]+)?)", README[: README.index(START)], re.MULTILINE))

    assert shown
    assert all(name in known or name.split()[0] in known for name in shown)


def test_files_named_in_the_readme_exist():
    for path in re.findall(r"`((?:\w+/)*\w+(?:\.py|\.yaml|\.sh|/))`", README[: README.index(START)]):
        assert (ROOT / path).exists() or (ROOT / "dualtrace_local" / path).exists(), path


def test_tests_named_in_the_readme_exist():
    there = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    named = re.findall(r"`(test_\w+)\*?`", README[: README.index(START)])

    assert len(named) > 20
    assert [name for name in named if f"def {name}" not in there] == []


# ----------------------------------------------------------------------------------------------------------- wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout with the tools that are installed."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


def test_the_wheel_carries_what_the_program_reads(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    data = {
        "models.yaml",
        "conditions.yaml",
        "published.yaml",
        "py.typed",
        "sample/sample.json",
        "sample/source.yaml",
        "report/questions.html.j2",
        "report/report.html.j2",
        "report/style.css",
    }
    prompts = {f"domains/prompts/{p.name}" for p in (ROOT / "dualtrace_local" / "domains" / "prompts").glob("*.txt")}

    assert len(prompts) > 5
    assert {f"dualtrace_local/{name}" for name in data | prompts} <= set(names)
    assert {name.split("/")[0] for name in names} == {"dualtrace_local", f"dualtrace_local-{__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_its_console_script_runs_outside_the_checkout(wheel, tmp_path):
    """Installed into a folder of its own, with the libraries of this environment and nothing of the checkout on the path."""
    there = tmp_path / "there"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(there), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    script = there / "bin" / "dualtrace"

    def run(*arguments):
        code = (
            f"import sys; sys.path.insert(0, {str(there)!r}); sys.argv = ['dualtrace', *sys.argv[1:]]; exec(open({str(script)!r}).read())"
        )
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    where = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(there)!r}); import dualtrace_local; print(dualtrace_local.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(there))
    assert run("--version").stdout == f"dualtrace, version {__version__}\n"
    listed = run("models", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "scripted" in json.loads(listed.stdout)["models"]
    demo = run("demo", "--model", "scripted", "--out", str(tmp_path / "demo"), "--json")
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout)["memory"]["scene"]
