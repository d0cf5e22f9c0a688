"""What may be loaded: a folder is judged by its files alone, before any library that could run them is imported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dualtrace_local.errors import WeightsError

CODE = frozenset({".py", ".pyc", ".pyo", ".pyd", ".pyz", ".so", ".dll", ".dylib"})
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".hdf5", ".keras", ".joblib", ".dill"})
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "added_tokens.json"})
"""JSON whose keys are words of a language, read by native code that imports nothing."""

CODE_KEYS = frozenset({"auto_map", "auto_mapping", "custom_generate", "custom_pipelines", "trust_remote_code"})
"""Settings with which transformers, peft and sentence-transformers are told to run code that lies beside the weights."""

CLASS_LISTS = {"modules.json": "type", "router_config.json": "types", "wordembedding_config.json": "tokenizer_class"}
"""Where sentence-transformers 6.2 takes the classes of its modules from: file and key. They must be its own."""

CLASS_KEYS = frozenset({"types", "tokenizer_class", "activation_function", "activation_fn"})
"""Settings that elsewhere hold a bare word or the dotted name of something to import."""

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
OWN_CLASSES = "sentence_transformers."
TRUSTED_CLASSES = (OWN_CLASSES, "torch.nn.", "transformers.")


def refuse_unsafe(folder: Path) -> None:
    """Raise WeightsError when loading ``folder`` could run code, naming every reason; imports nothing and follows no link.

    Refused: program files; settings that name code or classes outside the trusted libraries, at any depth; links and paths that
    leave the folder (copy a hub snapshot with ``cp -rL``); adapters, since they name a second, unchecked model; a folder without
    safetensors. A pickle is refused where it is what would be loaded, that is unless ``model.safetensors`` (or its index) lies
    beside it: the loaders prefer that name, and many published folders carry both.
    """
    if problems := unsafe(folder):
        msg = f"{folder} may not be loaded: {'; '.join(problems)}"
        raise WeightsError(msg)


def unsafe(folder: Path, *, whole: bool = True) -> tuple[str, ...]:
    """Every reason why ``folder`` may not be loaded; empty means that it may. One that is not ``whole`` may lack its weights yet."""
    if not folder.is_dir():
        return ("no such folder",)
    root = Path(os.path.realpath(folder))
    try:
        paths = files_below(root)
        problems = [f"{path.relative_to(root).as_posix()} {found}" for path in paths for found in _file_problems(path, root)]
    except OSError as problem:
        return (f"{problem.filename} cannot be read ({problem.strerror})",)
    if whole and not any(path.suffix.lower() == ".safetensors" and path.is_file() for path in paths):
        problems.append("no .safetensors file")
    return tuple(problems)


def files_below(root: Path) -> list[Path]:
    """Everything below ``root`` but plain folders; links are listed, never followed."""

    def stop(problem: OSError) -> None:
        raise problem

    found = []
    for top, folders, files in os.walk(root, onerror=stop):
        linked = [name for name in folders if (Path(top) / name).is_symlink()]
        found += [Path(top) / name for name in (*files, *linked)]
    return sorted(found)


def _file_problems(path: Path, root: Path) -> Iterator[str]:
    suffix, name = path.suffix.lower(), path.name.lower()
    if not _inside(path, root):
        yield "is a link to outside the folder"
        return
    if suffix in CODE:
        yield "is a program"
    if suffix in PICKLES and not any((path.parent / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        yield "may be a pickle, and no model.safetensors lies beside it"
    if name == "adapter_config.json":
        yield "names another model to load"
    if suffix == ".json" and name not in VOCABULARIES and path.is_file():
        yield from _json_problems(path, root)


def _json_problems(path: Path, root: Path) -> Iterator[str]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        yield "is not JSON"
        return
    name = path.name.lower()
    for key, value in _entries(content):
        if key in CODE_KEYS and value:
            yield f"has {key}"
        elif key == "path" and name == "modules.json" and not (isinstance(value, str) and _inside(path.parent / value, root)):
            yield f"has the path {value}, which leaves the folder"
        elif key == "weight_map" and name.endswith(".safetensors.index.json"):
            yield from (f"names {shard}" for shard in sorted(set(_strings(value))) if not _is_shard(path.parent / shard, root))
        elif key == CLASS_LISTS.get(name):
            yield from (f"names {named}" for named in _strings(value) if not named.startswith(OWN_CLASSES))
        elif key in CLASS_KEYS or name == "config_sentence_transformers.json":
            yield from (f"names {named}" for named in _strings(value) if _is_foreign(named))


def _is_foreign(named: str) -> bool:
    return DOTTED.fullmatch(named) is not None and not named.startswith(TRUSTED_CLASSES)


def _is_shard(path: Path, root: Path) -> bool:
    return path.suffix == ".safetensors" and _inside(path, root)


def _inside(path: Path, root: Path) -> bool:
    try:
        return Path(os.path.realpath(path)).is_relative_to(root)
    except ValueError:  # a NUL character, which no path can hold
        return False


def _entries(content: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, at any depth."""
    waiting: list[object] = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _strings(value: object) -> Iterator[str]:
    """The strings of a value: itself, or those of a list or of a dict's values."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value
