"""What is left of a whole job: by hand from the plan, corrected by the parts that are done."""

import pytest

from cafenet.common import job_progress as module
from cafenet.common.job_progress import WholeJob, left_in_all, next_part, whole_job
from cafenet.common.run_log import Journal


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_parts_that_took_twice_as_long_as_planned_double_the_others(clock):
    job = WholeJob([100.0, 200.0, 300.0])
    job.begin()
    assert job.seconds_left(100.0) == 600
    clock[0] = 203.0
    job.end()
    job.begin()
    # 203 + 3 s for 100 + 3 s that were planned is a factor of 2; the second part says itself that it takes 390 s
    assert job.seconds_left(390.0) == pytest.approx(390 + 2 * 300)
    assert job.note(390.0) == "part 2 of 3, about 16.5 min left in all"


def test_a_part_that_an_earlier_start_has_done_says_nothing_about_the_speed(clock):
    job = WholeJob([100.0, 200.0])
    job.begin()
    clock[0] = 1.0
    job.end()
    job.begin()
    assert job.seconds_left(50.0) == 50
    assert WholeJob([100.0, 200.0]).seconds_left(0.0) == 300


def test_without_times_the_parts_are_counted(clock):
    job = WholeJob([None, None])
    job.begin()
    assert job.note(10.0) == "part 1 of 2"


def test_progress_inside_says_what_is_left_in_all_and_outside_nothing(clock, capsys):
    with whole_job([10.0, 60.0]), next_part():
        journal = Journal(None, 10, title="supernet")
        journal.start(0)
        clock[0] = 50.0
        journal.show(5, "loss 1.0")
        journal.close()
    expected = "supernet: step 5/10, loss 1.0, 50 s left; part 1 of 2, about 1.8 min left in all\n"
    assert capsys.readouterr().err == expected
    assert left_in_all(1.0) == ""
    with next_part():
        assert left_in_all(1.0) == ""
