"""Texts to vectors with the real MiniLM."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from dualtrace_local.embed import load_embedder
from dualtrace_local.errors import WeightsError

TEXTS = ["The user keeps bees on the roof.", "Quarterly tax is due in April.", "The user has two beehives."]


def test_vectors_are_unit_rows_in_the_order_of_the_texts(embedder):
    rows = embedder.encode([*TEXTS, "a much longer text " * 40])
    assert rows.shape == (4, embedder.dimension)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for position, text in enumerate(TEXTS):
        assert np.allclose(rows[position], embedder.encode([text])[0], atol=1e-4)


def test_likeness_of_meaning_is_likeness_of_vectors(embedder):
    bees, tax, hives = embedder.encode(TEXTS)
    assert bees @ hives > 0.5 > bees @ tax


def test_no_texts_give_no_rows(embedder):
    assert embedder.encode([]).shape == (0, embedder.dimension)


def test_empty_text_and_half_characters_have_finite_vectors(embedder):
    """A lone surrogate would make the tokenizer raise; it is read as the replacement character."""
    rows = embedder.encode(["", "half \ud83d emoji", "half \ufffd emoji"])
    assert np.isfinite(rows).all()
    assert np.allclose(rows[1], rows[2], atol=1e-5)


def test_a_text_is_cut_after_the_last_whole_word_that_is_read(embedder):
    words = [f"word{n}" for n in range(400)]
    text = " ".join(words)
    kept = embedder.cut(text)
    assert embedder.cut(kept) == kept
    assert kept.split() == words[: len(kept.split())]
    assert 50 < len(kept.split()) < 256


def test_what_is_cut_off_changes_no_vector(embedder):
    text = "The lake froze early this year. " * 100
    whole, cut = embedder.encode([text, embedder.cut(text)])
    assert whole @ cut > 0.999


@pytest.mark.parametrize("text", ["", "   ", "short", "東京に行きました", "\ud83d"])
def test_short_texts_are_left_alone(embedder, text):
    assert embedder.cut(text) == text


def test_text_without_spaces_is_cut_too(embedder):
    kept = embedder.cut("x-" * 20_000)
    assert 0 < len(kept) < 40_000


def test_digest_belongs_to_the_files_not_to_the_folder(embedder, tmp_path):
    """Equal files anywhere have one identity; other pooling makes other vectors, so another identity."""
    copy = tmp_path / "copy"
    shutil.copytree(embedder.folder, copy)
    same = load_embedder("other-name", copy, embedder.dimension)
    assert len(same.digest) == 32
    assert same.digest == embedder.digest
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": false}')
    assert load_embedder("other-name", copy, embedder.dimension).digest != embedder.digest


def test_folder_that_names_code_is_refused(embedder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(embedder.folder, folder, ignore=shutil.ignore_patterns("modules.json"))
    (folder / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')
    with pytest.raises(WeightsError, match=r"evil\.Module"):
        load_embedder("model", folder, embedder.dimension)


def test_missing_folder_and_missing_file_are_one_line(embedder, tmp_path):
    with pytest.raises(WeightsError, match="models pull none"):
        load_embedder("none", tmp_path / "none", 384)
    folder = tmp_path / "model"
    shutil.copytree(embedder.folder, folder, ignore=shutil.ignore_patterns("tokenizer.json"))
    with pytest.raises(WeightsError, match=r"has no tokenizer\.json"):
        load_embedder("model", folder, 384)


def test_wrong_dimension_is_refused_with_both_numbers(embedder):
    with pytest.raises(WeightsError, match="384 numbers, not 512"):
        load_embedder("all-minilm-l6-v2", embedder.folder, 512).encode(["x"])


def test_importing_and_cutting_load_no_heavy_library(embedder):
    program = (
        "import sys; from pathlib import Path; from dualtrace_local.embed import load_embedder\n"
        "e = load_embedder('m', Path(sys.argv[1]), 384); e.cut('some words'); e.digest\n"
        "assert not {'torch', 'transformers', 'sentence_transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, str(embedder.folder)], check=True, timeout=60)
