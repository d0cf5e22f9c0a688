"""What a model's folder says of itself, held against its entry in models.yaml. Small files are read; nothing is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dualtrace_local.config import ModelSpec


def content_problems(folder: Path, spec: ModelSpec) -> tuple[str, ...]:
    """Where the folder contradicts models.yaml: shards, licence, chat template, context. What it does not say is no problem."""
    return (*_shards(folder), *_licence(folder, spec), *_template(folder, spec), *_context(folder, spec))


def _shards(folder: Path) -> Iterator[str]:
    for index in sorted(folder.glob("*.safetensors.index.json")):
        named = _json(index).get("weight_map")
        shards = named.values() if isinstance(named, dict) else ()
        missing = sorted({str(shard) for shard in shards if not (folder / str(shard)).is_file()})
        if missing:
            yield f"{index.name} names {missing[0]}, which is missing; widen files of its source in models.yaml, then pull --update"


def _licence(folder: Path, spec: ModelSpec) -> Iterator[str]:
    """The card's ``license`` (``other`` has its name apart) as against models.yaml; spelling does not matter."""
    head = card_head(folder)
    found = head.get("license")
    said = [str(x) for x in (found if isinstance(found, list) else [found]) if x]
    if isinstance(head.get("license_name"), str):
        said.append(head["license_name"])
    if said and spec.licence.casefold() not in [x.casefold() for x in said]:
        yield f"its card says licence {', '.join(said)}, models.yaml says {spec.licence}; read the licence, then correct models.yaml"


def _template(folder: Path, spec: ModelSpec) -> Iterator[str]:
    if spec.engine == "sentence-transformers":
        return
    settings = folder / "tokenizer_config.json"
    beside = any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json"))
    if settings.is_file() and not beside and not _json(settings).get("chat_template"):
        yield "has no chat template, so it is not a model for conversations; choose one that was tuned on instructions"


def _context(folder: Path, spec: ModelSpec) -> Iterator[str]:
    config = _json(folder / "config.json")
    inner = config.get("text_config")
    for place in (config, inner if isinstance(inner, dict) else {}):
        longest = place.get("max_position_embeddings")
        if isinstance(longest, int) and longest < spec.context:
            yield f"reads at most {longest} tokens, but models.yaml gives it context {spec.context}; lower that"


def card_head(folder: Path) -> Mapping[str, Any]:
    """The fields at the top of the model card, README.md; empty without any."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not text.startswith("---"):
        return {}
    try:
        head = yaml.safe_load(text.split("---", 2)[1])
    except (yaml.YAMLError, ValueError):
        return {}
    return head if isinstance(head, dict) else {}


def _json(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty when there is no such file. It was found to be JSON before."""
    content = json.loads(path.read_bytes()) if path.is_file() else {}
    return content if isinstance(content, dict) else {}
