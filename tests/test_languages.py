"""Text stays in the language it came in, and search finds it: Japanese, Arabic, German."""

import pytest
from kit_talks import ME, talk, words

from dualtrace_local.config import read_conditions
from dualtrace_local.records import Question
from dualtrace_local.search import View, search
from dualtrace_local.store import Store, terms

SAID = {
    "ja": ("私は京都で赤い自転車を買いました。", "素敵ですね。", "京都で何を買いましたか。"),
    "ja2": ("妹の名前は花子です。", "いい名前ですね。", "妹の名前は何ですか。"),
    "ar": ("اشتريت دراجة حمراء في عمّان.", "جميل.", "ماذا اشتريت في عمان؟"),
    "ar2": ("أختي ليلى تسكن في بيروت.", "حسنا.", "أين تسكن أختي ليلى؟"),
    "de": ("Ich habe in Köln ein grünes Fahrrad für 80 Euro gekauft.", "Schön.", "Was habe ich in Koeln oder Köln gekauft?"),
    "de2": ("Meine Schwester Änne wohnt in Übersee am Chiemsee.", "Schön dort.", "Wo wohnt meine Schwester Änne?"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("languages") / "s"
    with Store.open(path, embedder, create=True) as writer:
        writer.commit([talk(n, said, answered, facts=[(said, said)]) for n, (said, answered, _) in enumerate(SAID.values())])
    with Store.open(path, embedder) as reader:
        yield reader


@pytest.mark.parametrize("condition", ["c6", "c8", "history"])
@pytest.mark.parametrize("language", SAID)
def test_the_right_one_comes_first_as_it_was_said(store, embedder, language, condition):
    said, _, asked = SAID[language]
    view = View(store, ME, read_conditions().get(condition).model_copy(update={"threshold": -1.0}), name=condition)
    best = max(search(view, Question("q", asked, None), embedder, 5000, words).items, key=lambda i: i.score)
    assert said in (best.fact, *(t.text for t in best.turns))


def test_words_are_found_without_spaces_accents_and_vowel_marks():
    assert set(terms("自転車")) <= set(terms("私は赤い自転車を買いました。"))
    assert terms("عمّان") == terms("عمان")
    assert terms("Köln GRÜNES") == terms("KOLN grunes")
