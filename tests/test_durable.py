"""Nothing is lost, doubled or half there: kills at random moments, cut files, failing writes, readers during writes, many small commits.

After each: the store opens, it checks whole, and repeating the work ends in an equal dump.
"""

import random
import resource
import signal
import subprocess
import time

import pytest
from test_store import ANN, child, dump_of, empty, halve, outcome, taught

from dualtrace_local.errors import StoreError
from dualtrace_local.records import Scope
from dualtrace_local.store import Store
from dualtrace_local.store.check import check
from dualtrace_local.store.durable import size_of

BOB = Scope("bob", "home")
WORK = [outcome(n, BOB, dropped=n % 3 == 2) for n in range(6)]


@pytest.fixture(scope="module")
def base(tmp_path_factory, embedder):
    """Ann's sessions, whose key texts Bob's share, so that no model has to be loaded."""
    path = tmp_path_factory.mktemp("base") / "s"
    return taught(path, embedder, [outcome(n) for n in range(6)])


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, base, embedder):
    path = tmp_path_factory.mktemp("unbroken") / "s"
    subprocess.run(["cp", "-a", str(base), str(path)], check=True)
    with Store.open(path, embedder, write=True) as store:
        for one in WORK:
            store.commit([one])
    return dump_of(path)


@pytest.fixture
def mine(base, tmp_path):
    subprocess.run(["cp", "-a", str(base), str(tmp_path / "s")], check=True)
    return tmp_path / "s"


def repeated(path, embedder, unbroken):
    """Open, check, do it all again; nothing is missing, double or half."""
    lines = []
    with Store.open(path, embedder, write=True, say=lines.append) as store:
        store.commit(WORK)
    found = check(path, lines.append, read=True)
    assert found.problems == (), found.problems
    assert dump_of(path) == unbroken
    return lines


ONE_BY_ONE = """
    print("go", flush=True)
    for n in range(6):
        store.commit([made.outcome(n, bob, dropped=n % 3 == 2)])
        print(n, flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("seed", range(3))
def test_p01_killed_at_random_moments_nothing_is_lost_twice_or_half(mine, embedder, unbroken, seed):
    """Three kills of one work: at most the commit under way is done again."""
    dice = random.Random(seed)  # noqa: S311 - moments, no secret
    worker = child(embedder, mine, ONE_BY_ONE)
    assert worker.stdout.readline() == "go\n"
    time.sleep(dice.random() * 0.4)
    worker.kill()
    assert worker.wait(60) == -signal.SIGKILL
    done = len(worker.stdout.read().split())
    with Store.open(mine, embedder) as store:
        assert done <= len(store.sessions(BOB)) <= done + 1
    repeated(mine, embedder, unbroken)


@pytest.mark.parametrize("spoil", [empty, halve])
@pytest.mark.parametrize("place", ["_versions/*.manifest", "data/*", "_transactions/*", "_versions/latest_version_hint.json"])
def test_p02_after_a_loss_of_power_the_lost_batch_is_taught_again(mine, embedder, unbroken, place, spoil):
    """The newest file of every table is cut at once, as what never reached the disk is; of the check sums, written last, none is there."""
    sums = (mine / ".sums").read_bytes()
    with Store.open(mine, embedder, write=True) as store:
        store.commit(WORK[:2])
    for table in ("memories", "rounds", "vectors", "sessions"):
        found = sorted((mine / f"{table}.lance").glob(place), key=lambda f: f.stat().st_mtime_ns)
        spoil(found[-1])
    (mine / ".sums").write_bytes(sums)
    lines = repeated(mine, embedder, unbroken)
    assert len(lines) <= 1


def test_p02_a_disk_that_lied_about_a_file_costs_its_batch_and_is_whole_again(mine, embedder, unbroken):
    """The check sums say that the file was whole; it is not, one line says so, and a check afterwards has nothing to say."""
    with Store.open(mine, embedder, write=True) as store:
        store.commit(WORK[:2])
    for table in ("memories", "vectors"):
        halve(max((mine / f"{table}.lance" / "data").iterdir(), key=lambda f: f.stat().st_mtime_ns))
    assert {p.where.split("/")[0] for p in check(mine, print).problems} == {"memories.lance", "vectors.lance"}
    assert len(repeated(mine, embedder, unbroken)) == 1


def test_p02_a_folder_rolled_back_to_an_earlier_moment_is_a_store(mine, embedder, unbroken, tmp_path):
    """A table whose folder is older than the others' counts as torn."""
    subprocess.run(["cp", "-a", str(mine / "memories.lance"), str(tmp_path / "older")], check=True)
    with Store.open(mine, embedder, write=True) as store:
        store.commit(WORK[:2])
    subprocess.run(["rm", "-r", str(mine / "memories.lance")], check=True)
    subprocess.run(["mv", str(tmp_path / "older"), str(mine / "memories.lance")], check=True)
    repeated(mine, embedder, unbroken)


def test_p06_a_full_disk_is_one_line_and_costs_nothing(mine, embedder, unbroken):
    """No file may grow beyond a few sizes, one after the other, until the work passes."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    refused = []
    try:
        for most in (0, 100, 700, 1500, 4000, 9000):
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, unlimited[1]))
                with Store.open(mine, embedder, write=True) as store:
                    store.commit(WORK)
            except StoreError as problem:
                refused.append(str(problem))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            with Store.open(mine, embedder) as reader:
                assert len(reader.memories(ANN)) == 12
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert len(refused) > 2
    assert not any("\n" in line or "night trains" in line for line in refused)
    repeated(mine, embedder, unbroken)


def test_p07_a_reader_sees_whole_sessions_while_another_process_writes(mine, embedder):
    worker = child(embedder, mine, ONE_BY_ONE)
    try:
        assert worker.stdout.readline() == "go\n"
        seen = [0]
        with Store.open(mine, None) as reader:
            until = time.monotonic() + 60
            while seen[-1] < 6 and time.monotonic() < until:
                ledger = reader.sessions(BOB)
                memories, rounds = reader.memories(BOB), reader.rounds(BOB)
                keys = {row.key for row in ledger}
                assert keys <= {r.session_key for r in rounds}
                assert sum(m.session_key in keys for m in memories) == sum(row.memories for row in ledger)
                assert len(ledger) >= seen[-1]
                seen.append(len(ledger))
                time.sleep(0.05)
        assert seen[-1] == 6
    finally:
        worker.kill()
        worker.wait()


def test_a_store_taught_one_session_at_a_time_stays_small(base, embedder, tmp_path):
    """A few dozen show that files are put together and that the store is as large as one that was taught at once."""
    scopes = [Scope(f"u{n}") for n in range(60)]
    for name in ("one", "many"):
        subprocess.run(["cp", "-a", str(base), str(tmp_path / name)], check=True)
    with Store.open(tmp_path / "one", embedder, write=True) as store:
        store.commit([outcome(1, s) for s in scopes])
    with Store.open(tmp_path / "many", embedder, write=True) as store:
        for s in scopes:
            store.commit([outcome(1, s)])
    assert dump_of(tmp_path / "one") == dump_of(tmp_path / "many")
    assert max(len(list(table.glob("data/*"))) for table in (tmp_path / "many").glob("*.lance")) <= 90
    from dualtrace_local.store.care import optimize

    assert optimize(tmp_path / "many", print)[1] <= 1.2 * optimize(tmp_path / "one", print)[1]
    assert size_of(tmp_path / "many" / "memories.lance") > 0
