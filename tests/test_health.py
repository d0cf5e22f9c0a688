"""What fits a machine, and what the shipped entries for cards promise."""

import subprocess
from pathlib import Path

import kit
import pytest
import yaml

from dualtrace_local.config import FolderSource, GateWay, HubSource, ModelSpec, read_models
from dualtrace_local.pipeline.health import Card, fitting, read_cards

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = read_models().models
FOR_CARDS = {name: spec for name, spec in SHIPPED.items() if spec.card}


@pytest.mark.parametrize(
    ("sizes", "first", "size"),
    [
        ([], None, 0),
        ([6], None, 0),
        ([8], "qwen3-4b-fp8", 8),
        ([11], "qwen3-4b-fp8", 8),
        ([12], "qwen3-4b-fp8", 8),
        ([16], "qwen3.5-4b", 16),
        ([24], "qwen3.5-9b", 24),
        ([24, 24], "qwen3.5-9b", 24),
        ([8, 24], "qwen3.5-9b", 24),
        ([40], "qwen3.5-9b", 24),
        ([48], "qwen3.6-35b-a3b-fp8", 48),
        ([80], "qwen3.6-35b-a3b-fp8-80gb", 80),
        ([141], "qwen3.6-35b-a3b-fp8-80gb", 80),
    ],
)
def test_the_tier_that_fits(sizes, first, size):
    names = fitting(SHIPPED, sizes)

    assert (names[0] if names else None) == first
    assert {SHIPPED[name].card for name in names} == ({size} if size else set())
    assert len(names) <= 3


def test_a_users_own_entry_is_proposed_too():
    mine = ModelSpec(engine="vllm", licence="MIT", sources=(FolderSource(folder=Path("m")),), card=32)

    assert fitting(SHIPPED | {"mine": mine}, [40]) == ("mine",)
    assert fitting({"mine": mine}, [24]) == ()


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("NVIDIA GeForce RTX 4060, 8188, 7900\n", (Card("NVIDIA GeForce RTX 4060", 9, 8),)),
        ("Tesla T4, 15109, 15000\n", (Card("Tesla T4", 16, 16),)),
        ("NVIDIA L4, 22528, 22000\nNVIDIA L40S, 45634, 45000\n", (Card("NVIDIA L4", 24, 23), Card("NVIDIA L40S", 48, 47))),
        ("NVIDIA H100 80GB HBM3, 81559, 81000\n", (Card("NVIDIA H100 80GB HBM3", 86, 85),)),
        ("NVIDIA GB10, [N/A], [N/A]\n", (Card("NVIDIA GB10", 0, 0),)),
        ("A, B, 1000, 500\n", (Card("A, B", 1, 1),)),
        ("", ()),
        ("No devices were found\n", ()),
    ],
)
def test_the_drivers_list_is_read(text, cards):
    assert read_cards(text) == cards


@pytest.mark.parametrize("name", FOR_CARDS)
def test_an_entry_for_a_card_says_what_a_user_must_know(name):
    spec = FOR_CARDS[name]

    assert spec.engine == "vllm"
    assert spec.gate is GateWay.SCORED
    assert spec.licence == "Apache-2.0"
    assert spec.quantisation
    assert "Not tried on a card yet" in spec.note
    assert all(isinstance(source, HubSource) for source in spec.sources)
    assert not spec.sha256, "the lock file pins, since no one here has seen the bytes"
    assert spec.budgets.excerpt + spec.budgets.context <= 0.75 * spec.context
    assert spec.engine_options["max_num_seqs"] == spec.window
    assert spec.chat_template_kwargs == ({"enable_thinking": False} if "qwen" in name or "gemma" in name else {})
    assert "reasons" in spec.note or "gpt-oss" not in name


def test_every_size_has_a_default_and_one_or_two_alternatives():
    sizes = [spec.card for spec in FOR_CARDS.values()]

    assert sorted(set(sizes)) == [8, 16, 24, 48, 80]
    assert sizes == sorted(sizes)
    assert {sizes.count(size) for size in sizes} <= {2, 3}


def test_list_shows_card_context_licence_thinking_and_weights():
    listed = kit.document(kit.dualtrace("models", "list", "--json", model=None))["models"]
    shown = kit.dualtrace("models", "list", model=None).stdout

    assert listed["qwen3.5-9b"] == {
        "engine": "vllm",
        "licence": "Apache-2.0",
        "origin": "Qwen/Qwen3.5-9B",
        "gate": "scored",
        "context": 16384,
        "card": 24,
        "quantisation": "BF16",
        "thinking_off": True,
        "note": SHIPPED["qwen3.5-9b"].note,
        "here": False,
    }
    row = next(line for line in shown.splitlines() if line.startswith("qwen3.5-9b"))
    assert row.split() == "qwen3.5-9b 24 GB 16384 BF16 off scored Apache-2.0 not here".split()
    assert "Not tried on a card yet" in shown
    assert "dualtrace models pull NAME" in shown


def test_models_without_files_can_be_listed_pulled_and_checked(tmp_path):
    own = {"models": {"served": {"engine": "server", "licence": "as served", "endpoints": ["http://127.0.0.1:1/v1"]}}}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(own))
    options = ("--models", tmp_path / "m.yaml", "--json")

    assert kit.document(kit.dualtrace("models", "list", *options))["models"]["served"]["here"]
    assert kit.document(kit.dualtrace("models", "check", "served", *options))["models"]["served"]["good"]
    assert kit.document(kit.dualtrace("models", "pull", "served", *options)) == {"models": {"served": {"folder": ""}}}
    found = kit.document(kit.dualtrace("doctor", *options, model="served"))["findings"]
    assert {f["what"]: f["remedy"] for f in found}["read model"] == ""
    assert not (tmp_path / "m.lock.yaml").exists()


def test_doctor_proposes_a_model_for_this_machine():
    found = {f["what"]: f for f in kit.document(kit.dualtrace("doctor", "--json"))["findings"]}

    assert found["proposed model"]["value"]
    assert found["proposed model"]["remedy"] == "", "what may be done is no fault"


def test_doctor_says_when_a_model_wants_a_bigger_card():
    found = {f["what"]: f for f in kit.document(kit.dualtrace("doctor", "--json", model="gpt-oss-120b"))["findings"]}

    if found["gpu"]["value"].startswith("none"):
        assert found["read model"]["value"] == "gpt-oss-120b is for cards from 80 GB"
        assert found["read model"]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], []),
        (["--model", "scripted", "--json"], ["--model", "scripted"]),
        (["--out", "x y", "--model=a", "--judge-model", "b c"], ["--model=a", "--judge-model", "b c"]),
        (["--models", "m.yaml", "--seed", "3"], ["--models", "m.yaml"]),
    ],
)
def test_quickstart_hands_the_choice_of_models_to_pull(arguments, chosen):
    script = f'source "{ROOT}/scripts/common.sh"; model_options "$@"; printf "%s\\n" "${{MODEL_OPTIONS[@]}}"'
    done = subprocess.run(["bash", "-euc", script, "quickstart.sh", *arguments], capture_output=True, text=True, check=True)

    assert [line for line in done.stdout.split("\n") if line] == chosen


def test_quickstart_says_which_option_lacks_its_value():
    script = f'source "{ROOT}/scripts/common.sh"; model_options --model'
    done = subprocess.run(["bash", "-euc", script, "quickstart.sh"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "quickstart.sh: --model needs a value\n")


def test_two_cards_of_one_name_keep_their_own_memory():
    assert [card.free for card in read_cards("NVIDIA H100, 81559, 80000\nNVIDIA H100, 81559, 1000\n")] == [84, 1]


def test_the_shipped_file_named_as_ones_own_changes_nothing():
    assert read_models(ROOT / "models.yaml") == read_models()


@pytest.mark.parametrize("note", ["2024-12-01", "2024-13-45"])
def test_a_note_that_looks_like_a_date_is_text(tmp_path, note):
    (tmp_path / "m.yaml").write_text(f"models: {{a: {{engine: scripted, licence: x, note: {note}}}}}")

    assert read_models(tmp_path / "m.yaml").spec("a").note == note
