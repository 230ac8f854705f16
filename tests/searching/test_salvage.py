"""A journal damaged in the middle: the good lines are kept, and no score goes to another width than its own."""

import json
import random

import numpy as np
import pytest

from cafenet.report.trials import read_trials
from tests.searching.test_store import content, lines, scored, store_at

DAMAGES = {
    "cut": lambda line: line[: len(line) // 2] + b"\n",
    "zeros": lambda line: bytes(len(line) - 1) + b"\n",
    "binary": lambda line: b"\xff\xfe" + line[2:],
    "joined": lambda line: line[: len(line) // 2],
    "empty": lambda line: b"\n",
    "text": lambda line: b"hello\n",
}


def filled(path, number=6, **options):
    store = store_at(path, **options)
    for each in range(1, number + 1):
        bin_counts = np.array([each, 1])
        claim = store.claim(bin_counts) if store.is_shared else None
        store.add(scored([each, 1], value=each / 10), claim)
    return store


def damaged(path, number, damage):
    """Line `number` damaged."""
    parts = lines(path)
    parts[number] = DAMAGES[damage](parts[number])
    path.write_bytes(b"".join(parts))
    return path.read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_journal_torn_in_the_middle_goes_on_with_the_rest(damage, tmp_path, caplog):
    path = tmp_path / "trials.journal"
    expected = {each.bin_counts: content(each) for each in filled(path).all()}
    first_trial = next(number for number, line in enumerate(lines(path)) if json.loads(line)["op_code"] == 4)
    before = damaged(path, first_trial + 2, damage)
    assert {record.widths["g0"] for record in read_trials(path)} <= {1, 2, 4, 5, 6}  # a report reads what is left
    assert path.read_bytes() == before
    store = store_at(path)
    found = {each.bin_counts: content(each) for each in store.all()}
    lost = {(3, 1), (4, 1)} if damage == "joined" else {(3, 1)}
    assert found == {bin_counts: each for bin_counts, each in expected.items() if bin_counts not in lost}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "is damaged in 1 of its lines: 1 trials are lost and are scored again" in line
    assert line.endswith("and the damaged file as trials.journal.damaged")
    assert path.with_name("trials.journal.damaged").read_bytes() == before
    store.add(scored([3, 1], value=0.3))
    assert len(store_at(path).all()) == len(found) + 1
    assert len(caplog.records) == 1  # the second time it is whole


@pytest.mark.parametrize("seed", range(20))
def test_scores_of_claimed_trials_stay_with_their_widths(seed, tmp_path):
    """Two workers take turns; lines speak of trials by number, which a lost line shifts."""
    path, rng = tmp_path / "trials.journal", random.Random(seed)
    stores = [store_at(path, is_shared=True) for _ in range(2)]
    for first in range(1, 9, 2):
        bin_counts = [np.array([first, 1]), np.array([first + 1, 1])]
        claims = [store.claim(each) for store, each in zip(stores, bin_counts, strict=True)]
        for number in rng.sample((0, 1), 2):
            stores[number].add(scored([first + number, 1], value=(first + number) / 10), claims[number])
    num_lines = len(lines(path))
    for number in rng.sample(range(num_lines), 2):
        damaged(path, number, rng.choice(["cut", "zeros"]))
    found = store_at(path).all()
    assert {each.bin_counts: each.score.value for each in found}.items() <= {
        (n, 1): n / 10 for n in range(1, 9)
    }.items()


def test_most_claimed_trials_survive(tmp_path):
    path = tmp_path / "trials.journal"
    filled(path, 9, is_shared=True)
    creates = [number for number, line in enumerate(lines(path)) if json.loads(line)["op_code"] == 4]
    damaged(path, creates[3], "cut")
    assert sorted(each.bin_counts[0] for each in store_at(path, is_shared=True).all()) == [1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("number", [0, 1])
def test_a_study_whose_beginning_is_lost_begins_anew(number, tmp_path):
    """Nothing says any more which supernet the scores belong to."""
    path = tmp_path / "trials.journal"
    filled(path)
    before = damaged(path, number, "zeros")
    store = store_at(path)
    assert store.all() == []
    assert path.with_name("trials.journal.damaged").read_bytes() == before
    store.add(scored([1, 1]))
    assert len(store_at(path).all()) == 1


def test_a_second_study_after_the_damage_is_not_mixed_up_with_the_first(tmp_path):
    path = tmp_path / "trials.journal"
    filled(path)
    store_at(path, name="other", identity={"weights": "b"}).add(scored([9, 9]))
    damaged(path, 3, "cut")
    assert [each.bin_counts[0] for each in store_at(path, name="other", identity={"weights": "c"}).all()] == []
    assert {each.bin_counts[0] for each in store_at(path).all()} <= set(range(1, 7))
