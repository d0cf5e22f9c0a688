"""The benches of recall run whole on invented data with the rule-made model, and their numbers add up."""

import importlib.util
import json
import sys
from pathlib import Path

import kit
import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


def measured(tmp_path, name, *arguments):
    """What one bench keeps."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    out = tmp_path / f"{name}.json"
    module.main([*map(str, arguments), "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    sessions = [kit.BOAT, kit.TIDES, kit.SISTER, kit.SHIFT]
    marked = [(name, day, [{**kit.turn(n, t), "has_answer": n == 0} for n, t in enumerate(said)]) for name, day, said in sessions]
    rows = [
        kit.row("q_boat", "What did I name my boat?", "Marigold", marked, evidence=["answer_boat_1"]),
        kit.row("q_sister", "Where did my sister Ada move?", "Lisbon", marked, kind="multi-session", evidence=["answer_sis_2"]),
        kit.row("q_cat_abs", "What is the name of my hamster's dentist?", "Not said.", marked, kind="multi-session"),
    ]
    return kit.rows(tmp_path_factory.mktemp("bench") / "rows.json", rows)


def test_retrieval_compares_all_ways_at_no_more_tokens(benchmark, tmp_path):
    found = measured(tmp_path, "retrieval", benchmark, "--model", "scripted")
    rows = {(r["way"], r["first"]): r for r in found["data"]["rows.json"]["rows"]}
    assert {way for way, _ in rows} == {
        "vectors",
        "full text",
        "fusion",
        "fusion + neighbours",
        "one scale",
        "+ beside",
        "everything, times and tastes lifted",
    }
    for (_, first), row in rows.items():
        assert row["any"]["n"] == 2
        assert row["all"]["hit"] <= row["any"]["hit"] == 2
        assert row["tokens"] <= rows["fusion + neighbours", first]["tokens"]


def test_retrieval_of_a_taught_store_has_rows_with_facts_and_scenes(benchmark, tmp_path):
    kit.teach(tmp_path / "s", benchmark)
    rows = measured(tmp_path, "retrieval", benchmark, "--store", tmp_path / "s", "--model", "scripted")["data"]["rows.json"]["rows"]
    assert {"+ facts", "+ scenes"} <= {r["way"] for r in rows}


def test_answers_says_where_each_wrong_answer_was_lost(benchmark, tmp_path):
    rows = measured(tmp_path, "answers", benchmark, "--conditions", "c6,c8,vanilla", "--model", "scripted")["data"]["rows.json"]["rows"]
    overall = {r["condition"]: r for r in rows if r["kind"] == "overall"}
    for row in rows:
        assert row["scored"] - row["right"] == sum(row[why] for why in ("not kept", "not found", "misread", "made up"))
    assert overall["c6"]["right"] == 3
    assert overall["c8"]["not found"] == 0
    assert (overall["vanilla"]["right"], overall["vanilla"]["not found"]) == (1, 2)


def test_dates_are_right_for_all_but_a_few(tmp_path):
    parts = measured(tmp_path, "dates")["parts"]
    assert sum(p["n"] for p in parts.values()) >= 150
    assert all(p["hit"] / p["n"] >= 0.98 for p in parts.values())
    assert all(p["n"] - p["hit"] == len(p["wrong"]) for p in parts.values())


def test_speed_sets_a_search_beside_a_scan(tmp_path):
    found = measured(tmp_path, "speed", "--memories", "40", "--searches", "3")
    assert found["memories"] == 40
    assert found["times_the_scan"] > 0
