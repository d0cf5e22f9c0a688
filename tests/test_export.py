"""Taking everything away and bringing it back: archives come back equal, Markdown says what the paper's files say."""

import json

import kit
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_store import ANN, dump_of, outcome, taught

from dualtrace_local.pipeline.correct import Edit, edited
from dualtrace_local.pipeline.export import fact_page, scene_page
from dualtrace_local.records import Scope
from dualtrace_local.store import Change, Store
from dualtrace_local.store.check import check

BOB = Scope("bob", "o'neill")


@pytest.fixture(scope="module")
def full(tmp_path_factory, embedder):
    """A store with two scopes, a correction, a retracted memory, haystacks, and something forgotten in whole and in part."""
    path = tmp_path_factory.mktemp("full") / "s"
    taught(path, embedder, [outcome(n, dropped=n == 2) for n in range(4)], [outcome(n, BOB) for n in range(2)])
    with Store.open(path, embedder, write=True) as store:
        first, second = store.memories(ANN)[:2]
        store.change(first, Change(edited(first, Edit(fact=["The user keeps 4 hives."])), "edit", "Ann", "2024-07-01T10:00:00"))
        gone = outcome(3).encoded.session.key
        store.set_haystacks({"q1": [outcome(0).encoded.session.key, outcome(1).encoded.session.key]})
        store.forget([row for row in store.sessions(ANN) if row.key == gone], [], [])
        part = next(m for m in store.memories(BOB) if m.ordinal == 1)
        store.forget([], [part], [r for r in store.rounds(BOB) if r.session_key == part.session_key])
        from dataclasses import replace

        store.change(second, Change(replace(second, status="retracted", version=1), "retract", "Ann", "2024-07-02T10:00:00"))
    return path


def exported(path, target, *more):
    result = kit.dualtrace("memory", "export", target, "--store", path, "--json", *more)
    assert result.exit_code == 0, result.stderr
    return kit.document(result)


def imported(archive, store, *more, code=0):
    result = kit.dualtrace("memory", "import", archive, "--store", store, "--json", *more)
    assert result.exit_code == code, result.stderr
    told = kit.document(result)
    assert told["read"] == told["added"] + told["unchanged"] + told["forgotten"] + told["failed"]
    return told


def test_an_archive_comes_back_equal_and_importing_again_adds_nothing(full, tmp_path):
    assert exported(full, tmp_path / "a.jsonl", "--all-scopes")["sessions"] == 5
    assert imported(tmp_path / "a.jsonl", tmp_path / "t") == {"read": 5, "added": 5, "unchanged": 0, "forgotten": 0, "failed": 0}
    assert dump_of(tmp_path / "t") == dump_of(full)
    assert imported(tmp_path / "a.jsonl", tmp_path / "t")["unchanged"] == 5
    assert dump_of(tmp_path / "t") == dump_of(full)
    assert check(tmp_path / "t", print, read=True).problems == ()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines[0]["archive"] == "dualtrace"
    assert not any("vector" in line for line in lines)
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_scope_is_exported_alone_and_what_was_forgotten_here_stays_away(full, tmp_path, embedder):
    exported(full, tmp_path / "a.jsonl", "--scope", "user=ann", "--scope", "project=home")
    assert "bob" not in (tmp_path / "a.jsonl").read_text()
    imported(tmp_path / "a.jsonl", tmp_path / "t")
    with Store.open(tmp_path / "t", embedder, write=True) as store:
        store.forget(store.sessions(ANN)[:1], [], [])
    assert imported(tmp_path / "a.jsonl", tmp_path / "t")["forgotten"] == 1
    assert imported(tmp_path / "a.jsonl", tmp_path / "t", "--again")["added"] == 1


def test_corrections_that_go_on_from_the_stores_own_are_added(full, tmp_path, embedder):
    exported(full, tmp_path / "a.jsonl", "--all-scopes")
    imported(tmp_path / "a.jsonl", tmp_path / "t")
    with Store.open(full, embedder) as store:
        memory = next(m for m in store.memories(ANN) if m.version)
    with Store.open(tmp_path / "t", embedder, write=True) as store:
        store.change(memory, Change(edited(memory, Edit(category="bees")), "edit", "Bea", "2024-08-01T10:00:00"))
    exported(tmp_path / "t", tmp_path / "b.jsonl", "--all-scopes")
    imported(tmp_path / "a.jsonl", tmp_path / "u")
    assert imported(tmp_path / "b.jsonl", tmp_path / "u")["unchanged"] == 5
    assert dump_of(tmp_path / "u") == dump_of(tmp_path / "t")


def test_a_changed_or_torn_archive_costs_its_sessions_only(full, tmp_path):
    exported(full, tmp_path / "a.jsonl", "--all-scopes")
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"table":"memories"' in line)
    lines[at] = lines[at][: len(lines[at]) // 2] + "\n"
    (tmp_path / "b.jsonl").write_text("".join(lines))
    assert imported(tmp_path / "b.jsonl", tmp_path / "t", code=3)["failed"] == 1
    for text in ("", "{}\n", '{"archive":"dualtrace","version":9}\n'):
        (tmp_path / "c.jsonl").write_text(text)
        result = kit.dualtrace("memory", "import", tmp_path / "c.jsonl", "--store", tmp_path / "u")
        assert result.exit_code == 1
        assert "archive" in result.stderr
    assert not (tmp_path / "u").exists()
    assert kit.dualtrace("memory", "export", tmp_path / "a.jsonl", "--store", full).exit_code == 1, "nothing is overwritten"


def test_p19_an_archive_is_never_taught(full, tmp_path):
    exported(full, tmp_path / "a.jsonl", "--all-scopes")
    result = kit.dualtrace("teach", tmp_path / "a.jsonl", "--store", tmp_path / "t")
    assert result.exit_code == 1
    assert "never taught" in result.stderr


def test_markdown_is_the_papers_and_holds_the_present_only(full, tmp_path):
    done = exported(full, tmp_path / "md", "--format", "markdown", "--scope", "user=ann", "--scope", "project=home")
    facts = {f.name: f.read_text() for f in (tmp_path / "md" / "facts").iterdir()}
    assert done["memories"] == len(facts) == 3
    assert any("The user keeps 4 hives." in text for text in facts.values())
    assert not any("retracted" in text for text in facts.values())
    scene = next((tmp_path / "md" / "scenes").iterdir())
    assert scene.read_text().startswith("[SCENE:day-work]\n---\n")
    assert f'linked_scene: "scenes/{scene.name}"' in facts[scene.name]
    assert kit.dualtrace("teach", scene, "--store", tmp_path / "t").exit_code == 1
    assert kit.dualtrace("memory", "export", tmp_path / "md", "--format", "markdown", "--store", full).exit_code == 1


@given(st.text())
def test_p22_frontmatter_comes_back_exactly(text):
    from dataclasses import replace

    memory = replace(outcome(1).encoded.memories[0], category=text.encode("utf-8", "replace").decode())
    for page in (fact_page(memory, "n"), scene_page(memory, "n")):
        head = page.split("---\n")[1]
        assert yaml.safe_load(head)["category"] == memory.category
        assert all(isinstance(value, str) for value in yaml.safe_load(head).values())
