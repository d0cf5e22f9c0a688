"""Texts to vectors, with a local model folder only. The one room that imports sentence-transformers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import WeightsError
from .weights import refuse_unsafe

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

BATCH_SIZE = 64
RECENT = 4096
"""Vectors kept at hand: a question asked under several conditions is embedded once."""

SURROGATES = re.compile("[\ud800-\udfff]")


class Embedder:
    """An embedding model in a checked local folder; made by ``load_embedder``.

    The model itself is loaded by the first ``encode``: cutting and identity need only the small files of the folder.
    """

    def __init__(self, name: str, folder: Path, dimension: int) -> None:
        self.name = name
        self.folder = folder
        self.dimension = dimension
        """Length of a vector."""
        self._recent: dict[str, NDArray[np.float32]] = {}

    @cached_property
    def digest(self) -> str:
        """32 hex characters that identify the vectors: of the weights and of the settings that pool, cut and normalise them.

        The same for equal files in any folder.
        """
        whole = hashlib.sha256()
        for file in sorted(self.folder.rglob("*")):
            if file.name == "model.safetensors" or file.name in _SETTINGS:
                with file.open("rb") as stream:
                    content = hashlib.file_digest(stream, "sha256").hexdigest()
                whole.update(f"{file.relative_to(self.folder).as_posix()} {content}\n".encode())
        return whole.hexdigest()[:32]

    @cached_property
    def limit(self) -> int:
        """Tokens of a text that the model reads, its two marks included."""
        for name, setting in (("sentence_bert_config.json", "max_seq_length"), ("config.json", "max_position_embeddings")):
            file = self.folder / name
            value = json.loads(file.read_text(encoding="utf-8")).get(setting) if file.is_file() else None
            if isinstance(value, int):
                return value
        msg = f"embedding model {self.folder}: neither of its settings files says how many tokens it reads"
        raise WeightsError(msg)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of ``texts``, in their order: shape [len(texts), dimension]. Each text is read up to ``limit`` tokens."""
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        whole = [SURROGATES.sub("\ufffd", text) for text in texts]
        if new := [text for text in dict.fromkeys(whole) if text not in self._recent]:
            rows = self._model.encode(new, batch_size=BATCH_SIZE, normalize_embeddings=True, show_progress_bar=False)
            self._recent.update(zip(new, np.asarray(rows, dtype=np.float32), strict=True))
        found = np.stack([self._recent[text] for text in whole])
        for oldest in list(self._recent)[:-RECENT]:
            del self._recent[oldest]
        return found

    def cut(self, text: str) -> str:
        """``text`` up to the last whole word that the model still reads; the text itself when all of it is read."""
        end = self._end(text)
        if end == len(text):
            return text
        kept = text[:end]
        words = kept.rsplit(None, 1)
        inside_word = not (text[end].isspace() or kept[-1:].isspace())
        return words[0] if inside_word and len(words) > 1 else kept.rstrip()

    def _end(self, text: str) -> int:
        """Characters of ``text`` that the model reads."""
        spans = self._tokenizer.encode(SURROGATES.sub("\ufffd", text), add_special_tokens=False).offsets
        room = self.limit - self._tokenizer.num_special_tokens_to_add(is_pair=False)
        return len(text) if len(spans) <= room else int(spans[room - 1][1])

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _model(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        try:
            model: Any = SentenceTransformer(str(self.folder), local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as problem:
            msg = f"embedding model {self.folder}: cannot be loaded: {' '.join(str(problem).split())[:200]}; fetch it again"
            raise WeightsError(msg) from problem
        found = model.get_embedding_dimension()
        if found != self.dimension:
            msg = f"embedding model {self.folder}: has vectors of {found} numbers, not {self.dimension}; correct models.yaml"
            raise WeightsError(msg)
        return model


_SETTINGS = frozenset({"config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json"})


def load_embedder(name: str, folder: Path, dimension: int) -> Embedder:
    """The embedding model ``name`` from ``folder``, which holds safetensors and no code (WeightsError otherwise)."""
    if not folder.is_dir():
        msg = f"embedding model {name}: {folder} is not a folder; run `dualtrace models pull {name}`"
        raise WeightsError(msg)
    refuse_unsafe(folder)
    for needed in ("model.safetensors", "tokenizer.json", "config.json"):
        if not (folder / needed).is_file():
            msg = f"embedding model {name}: {folder} has no {needed}; run `dualtrace models pull {name}`"
            raise WeightsError(msg)
    return Embedder(name, folder, dimension)
