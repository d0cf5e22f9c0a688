"""The architecture as tests: imports point up the room list, heavy libraries stay in their rooms, importing does nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dualtrace_local"

ROOMS = (
    "records",
    "errors",
    "stats",
    "config",
    "weights",
    "corpus",
    "masking",
    "dates",
    "grounding",
    "domains",
    "engines",
    "embed",
    "encode",
    "joint",
    "store",
    "search",
    "recall",
    "judge",
    "report",
    "sample",
    "pipeline",
    "cli",
)
"""Design section 3, top to bottom; a room may know the rooms above it. (sample knows none, so its place does not matter.)"""

STAGES = ("encode", "recall", "judge")
CONCRETE_ENGINES = tuple(f"engines.{name}" for name in ("vllm", "server", "transformers", "scripted", "rules", "probe", "endpoint"))

HEAVY = {
    "vllm": {"engines"},
    "torch": {"engines", "weights"},
    "transformers": {"engines", "weights"},
    "gguf": {"weights"},
    "outlines": {"engines"},
    "llguidance": {"engines"},
    "httpx": {"engines", "weights"},
    "sentence_transformers": {"embed"},
    "lancedb": {"store"},
    "lance": {"store"},
    "pyarrow": {"store"},
    "matplotlib": {"report"},
    "bm25s": {"search"},
    "dateparser": {"dates"},
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Full names of what a file imports, and whether at module level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["dualtrace_local", *path.relative_to(PACKAGE).parts[:-1]]
    top = set(map(id, tree.body))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(f"{module}.{alias.name}", id(node) in top) for alias in node.names]
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_up(path):
    own = ROOMS.index(room_of(path))
    for name, _ in imports(path):
        if name.startswith("dualtrace_local."):
            other = name.split(".")[1]
            if other in {"__version__", "Memory"}:
                assert room_of(path) == "cli"
                continue
            assert ROOMS.index(other) <= own, f"{path.name} imports {name}, which stands below it"


@pytest.mark.parametrize("stage", STAGES)
def test_stages_know_neither_store_nor_engines_nor_each_other(stage):
    for name, _ in imports(PACKAGE / f"{stage}.py"):
        local = name.removeprefix("dualtrace_local.")
        assert not local.startswith((*CONCRETE_ENGINES, "store", "search", "embed", "pipeline"))
        assert local.split(".")[0] not in set(STAGES) - {stage}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(path):
    for name, at_top in imports(path):
        library = name.split(".")[0]
        if library in HEAVY:
            assert room_of(path) in HEAVY[library], f"{path.name} imports {name}"
            if library in ("vllm", "torch", "transformers", "sentence_transformers", "matplotlib", "outlines"):
                inside_a_guard = not at_top
                assert inside_a_guard, f"{path.name} imports {name} when it is imported"


def test_only_config_reads_the_environment():
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if room_of(path) not in ("config", "weights"):
            assert "os.environ" not in source, path
            assert "getenv" not in source, path


def test_no_file_is_longer_than_it_should_be():
    long = {p.name: n for p in FILES if (n := len(p.read_text(encoding="utf-8").splitlines())) > 450}

    assert long == {}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that are loaded after ``code`` ran in a fresh interpreter."""
    script = f"import sys\n{code}\nprint(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_no_heavy_library():
    run = "assert CliRunner().invoke(main, ['--help']).exit_code == 0"
    code = f"from click.testing import CliRunner\nfrom dualtrace_local.cli import main\n{run}"

    assert not {"torch", "vllm", "transformers", "lancedb", "sentence_transformers", "matplotlib", "scipy"} & loaded_by(code)


def test_importing_the_package_is_light_and_has_no_effect(tmp_path):
    before = sorted(tmp_path.iterdir())

    loaded = loaded_by(f"import os\nos.chdir({str(tmp_path)!r})\nimport dualtrace_local")
    assert not {"torch", "vllm", "lancedb", "numpy", "pydantic"} & loaded
    assert before == sorted(tmp_path.iterdir())
