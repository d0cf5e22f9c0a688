"""File names of ours: readable, short, and never the same for two texts."""

import itertools
import unicodedata

import kit
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dualtrace_local.config import package_file
from dualtrace_local.corpus import file_name

TITLES = [
    "שלום לכולם", "旅行の計画", "🦔", "🪁", " ", "", "\t\n", "Garden B?", "garden-b", "garden b", "GARDEN-B", "w" * 400, "w" * 399, "AUX",
    "aux",
    "nul.txt", "com7", "résumé", unicodedata.normalize("NFD", "résumé"), "resume", "../../up", "/abs", "C:\\x", "a.", ".a", "a..b", "x~y",
    "a\0b", "half \ud83d", "-", "--version", "org/model 7B (Q4)", "ﬁne", "fine",
]  # fmt: skip


def test_txt_04_every_title_has_a_file_of_its_own():
    """On a disk that ignores case and spells accents its own way too."""
    names = [file_name(title) for title in TITLES]

    assert len({unicodedata.normalize("NFC", n).casefold() for n in names}) == len(TITLES)
    assert all(len(n.encode()) <= 45 and "/" not in n and "\\" not in n and not n.startswith((".", "-", "~")) for n in names)
    assert not {n.split(".")[0] for n in names} & {"con", "aux", "nul", "com7"}
    assert [file_name(title) for title in TITLES] == names
    assert file_name("résumé").startswith("resume~")


def test_plain_names_stay_as_they_are():
    conditions = yaml.safe_load(package_file("conditions.yaml").read_text())["conditions"]
    models = yaml.safe_load(package_file("models.yaml").read_text())["models"]

    assert [file_name(c, dots=False) for c in conditions] == list(conditions)
    assert [file_name(m) for m in models] == list(models)


def test_names_that_are_joined_by_dots_cannot_meet():
    joined = [f"{file_name(c, dots=False)}.{file_name(j)}" for c, j in itertools.product(("a", "a.b", "b"), ("b.c", "c", "a.b.c"))]

    assert len(set(joined)) == 9
    assert file_name("c6.hypotheses", dots=False) != "c6.hypotheses"


@given(st.text(st.characters(codec="utf-16", exclude_categories=()), max_size=60), st.text(max_size=60))
def test_two_texts_never_share_a_name(one, other):
    names = {file_name(one), file_name(other)}

    assert len({n.casefold() for n in names}) == len({one, other})
    assert all(n.isascii() and n.isprintable() and len(n) <= 45 for n in names)
    assert file_name(file_name(one)) == file_name(one) or "~" in file_name(one)


@pytest.mark.parametrize("name", ["../../out", "Mine", "a/b", "con", "c6.hypotheses", "Größe: 2"])
def test_a_condition_named_by_its_user_stays_inside_the_run(tmp_path, name):
    inner = tmp_path / "deep"
    inner.mkdir()
    own = inner / "conditions.yaml"
    c7 = yaml.safe_load(package_file("conditions.yaml").read_text())["conditions"]["c7"]
    own.write_text(yaml.safe_dump({"conditions": {name: c7}}, allow_unicode=True), encoding="utf-8")
    bench = kit.rows(inner / "b.json", kit.small_benchmark()[:1])
    result = kit.dualtrace("run", bench, "--out", inner / "run", "--conditions", name, "--conditions-file", own, "--json")

    assert result.exit_code == 0, result.stderr
    assert {row["condition"] for row in kit.document(result)["rows"]} == {name}
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert {p.name for p in inner.iterdir()} == {"conditions.yaml", "b.json", "run"}
    made = [p.name for p in (inner / "run" / "answers").iterdir()]
    assert sorted(made) == sorted([f"{file_name(name, dots=False)}.jsonl", f"{file_name(name, dots=False)}.hypotheses.jsonl"])
