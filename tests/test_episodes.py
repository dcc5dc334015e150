import numpy as np
import pytest

from rlcheck.episodes import Episodes, Steps, codes, concatenate
from rlcheck.errors import RlcheckError


def episodes(**changes):
    columns = {
        "episode_id": [0, 1, 2, 2],
        "started_at": [0.0, 1.0, 2.0, 6.0],
        "finished_at": [5.0, 3.0, 6.0, np.nan],
        "status": ["done", "timeout", "infra", "in_flight"],
        "attempt": [0, 0, 0, 1],
        "trained_step": [0, 0, -1, -1],
        "drop_reason": ["", "masked", "retried", ""],
        "version_started": [3, 3, 4, 4],
        "trained_version": [4, 5, -1, -1],
    }
    return Episodes(**(columns | changes))


def steps(**changes):
    columns = {
        "start": [10.0, 30.0],
        "end": [15.0, 35.0],
        "sync_start": [16.0, 36.0],
        "sync_end": [20.0, 40.0],
        "version": [7, 8],
    }
    return Steps(**(columns | changes))


def test_masks_and_derived_columns():
    log = episodes()
    assert log.consumed.tolist() == [True, True, False, False]
    assert log.trained.tolist() == [True, False, False, False]
    assert log.ended.tolist() == [True, True, True, False]
    assert log.staleness.tolist() == [1, 2]
    np.testing.assert_array_equal(log.seconds, [5.0, 2.0, 4.0, np.nan])


def test_what_is_left_out_has_defaults():
    log = Episodes(["a", "b"], [0, 1], [2, 3], ["done", "done"])
    assert log.group_id.tolist() == log.prompt_id.tolist() == ["a", "b"]
    assert log.attempt.tolist() == [0, 0]
    assert log.version_started.tolist() == [-1, -1]
    assert log.drop_reason.tolist() == ["", ""]
    assert [log.recorded(name) for name in ("status", "reward", "tokens")] == [True, False, False]


def test_an_empty_log_is_a_log():
    log = Episodes([], [], [], [])
    assert len(log) == 0
    assert log.problems() == []


def test_select_and_concatenate_are_inverse():
    log = episodes()
    joined = concatenate([log.select([0, 1]), log.select(np.array([False, False, True, True]))])
    for name in ("episode_id", "started_at", "status", "trained_step", "reward"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(log, name))
    assert steps().select([1]).version.tolist() == [8]
    with pytest.raises(RlcheckError, match="no records"):
        concatenate([])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"started_at": [0.0, 1.0]}, r"column started_at: shape \(2,\), but episode_id has \(4,\)"),
        ({"status": [["done"]] * 4}, r"column status: shape \(4, 1\)"),
        ({"started_at": ["now", "1", "2", "3"]}, "column started_at: cannot be stored as float64"),
        ({"trained_step": ["x"] * 4}, "column trained_step: cannot be stored as int64"),
        ({"episode_id": [0.5, 1.0, 2.0, 3.0]}, "column episode_id: ids are whole numbers or text"),
    ],
)
def test_construction_refuses_what_cannot_be_stored(changes, message):
    with pytest.raises(RlcheckError, match=message):
        episodes(**changes)


def test_a_healthy_log_has_no_problems():
    assert episodes().problems() == []
    assert steps().problems() == []


@pytest.mark.parametrize(
    ("changes", "column", "row", "message"),
    [
        ({"started_at": [-1.0, 1.0, 2.0, 6.0]}, "started_at", 0, "-1.0 is a negative time"),
        ({"finished_at": [5.0, 0.5, 6.0, np.nan]}, "finished_at", 1, "0.5 is before started_at 1.0"),
        ({"started_at": [0.0, np.nan, 2.0, 6.0]}, "started_at", 1, "missing"),
        ({"finished_at": [5.0, 3.0, np.nan, np.nan]}, "finished_at", 2, "missing, but status is 'infra'"),
        ({"finished_at": [5.0, 3.0, 6.0, 7.0]}, "finished_at", 3, "given, but status is 'in_flight'"),
        ({"status": ["done", "ok", "infra", "in_flight"]}, "status", 1, "unknown status 'ok'; valid: done, "),
        ({"attempt": [0, 0, 1, 1]}, "episode_id", 3, "2 is there already, with the same attempt"),
        ({"trained_step": [0, 0, -1, 1]}, "trained_step", 3, "given, but the attempt is still in flight"),
    ],
)
def test_bad_content_is_one_clear_problem(changes, column, row, message):
    (problem,) = episodes(**changes).problems()
    assert (problem.column, problem.row) == (column, row)
    assert message in problem.message


def test_the_same_trouble_in_many_rows_is_one_problem():
    (problem,) = episodes(started_at=[-1.0, -2.0, -3.0, 6.0]).problems()
    assert (problem.row, problem.count) == (0, 3)


def test_a_reused_batch_is_no_duplicate():
    log = episodes(episode_id=[1, 1, 2, 2], trained_step=[0, 1, -1, -1])
    assert log.problems() == []


@pytest.mark.parametrize(
    ("changes", "column", "row"),
    [
        ({"start": [-1.0, 30.0]}, "start", 0),
        ({"end": [15.0, 29.0]}, "end", 1),
        ({"sync_start": [14.0, 36.0]}, "sync_start", 0),
        ({"sync_end": [20.0, 35.5]}, "sync_end", 1),
        ({"version": [7, 7]}, "version", 1),
    ],
)
def test_bad_steps(changes, column, row):
    (problem,) = steps(**changes).problems()
    assert (problem.column, problem.row) == (column, row)


def test_the_version_at_a_time():
    assert steps().version_at([0.0, 19.9, 20.0, 39.9, 40.0]).tolist() == [7, 7, 8, 8, 9]


@pytest.mark.parametrize("ids", [np.array([5, 3, 5, 4]), np.array(["b", "a", "b", "c"], object)])
def test_codes_are_equal_where_ids_are(ids):
    coded = codes(ids)
    np.testing.assert_array_equal(coded[:, None] == coded, ids[:, None] == ids)
    assert coded.max() == len(set(ids.tolist())) - 1
