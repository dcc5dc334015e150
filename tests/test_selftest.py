"""Planted runs: what is caught and named, on the embedded stack and on a user's; the tables; the self-test."""

import pytest

from rlcheck import selftest
from rlcheck.errors import RlcheckError
from rlcheck.faults import FAULTS, staging
from rlcheck.faults.planting import Stage
from rlcheck.tables import faults as table_of_faults
from rlcheck.tables import healthy


def test_a_fault_of_a_model_is_caught_and_named_and_leaves_the_next_run_healthy():
    fault = FAULTS["shift"]
    run = staging.plant(fault, 0)
    assert run.named == "shifted"
    assert all(result.findings for result in run.failed)
    again = staging.stage("float32").run(None, 0, {}, ["-k", "shifted or placeholder"])
    assert [result.outcome for result in again.results] == ["passed"] * 2


def test_the_table_says_what_was_caught_and_taken_for(capsys, tmp_path, monkeypatch):
    target, log = tmp_path / "faults.md", tmp_path / "trials.jsonl"
    arguments = ["--only", "overlong_policy", "silent_eviction", "--seeds", "2", "--dtype", "float32"]
    table_of_faults.main([*arguments, "--log", str(log), "--write", str(target)])
    text = target.read_text()
    assert text in capsys.readouterr().out
    monkeypatch.setattr(staging, "plant", None)  # a sweep goes on where its log ends
    table_of_faults.main([*arguments, "--log", str(log)])
    assert text in capsys.readouterr().out
    [row] = [line for line in text.splitlines() if "`silent_eviction`" in line]
    assert [cell.strip() for cell in row.split("|")][3:6] == ["any", "2/2", "2/2"]
    assert "- any: 3 faults, 6 runs: caught in 100.0%, named first in 100.0%." in text
    with pytest.raises(RlcheckError, match="no fault matches 'silent_evicton'"):
        staging.choose(["silent_evicton"])


def test_the_table_says_from_which_factor_on_a_cause_is_named():
    def trial(seed, named, excess):
        failed = ("check",) if excess else ()
        return staging.Trial(FAULTS["shift"], "bfloat16", seed, failed, named, 0.9, 1.0, "", excess)

    right = [trial(seed, "shifted", 3.0) for seed in range(39)]
    assert "-fold" not in table_of_faults.summary(right)
    hidden, mistaken = trial(39, "", 0.0), trial(40, "numerics", 1.2)
    assert "in 97.5% of the 40 in which a number exceeds its limit at least 1.2-fold." in table_of_faults.summary(
        [*right, hidden, mistaken]
    )
    assert "in 100.0% of the 39 in which a number exceeds its limit at least 3-fold." in table_of_faults.summary(
        [*right, mistaken, trial(41, "numerics", 1.2), trial(42, "numerics", 1.2)]
    )


def test_a_healthy_run_raises_no_alarm_though_a_check_is_provoked(monkeypatch):
    monkeypatch.setattr(healthy, "TOPICS", "mismatch or padding")
    shape = healthy.draw(0, ["float32"])
    run = healthy.once(0, shape)
    assert run.failed
    assert healthy.alarms_of(run) == []
    assert run.named == "numerics"


# -- the self-test -----------------------------------------------------------------------------------

MINE = """
import pytest
from diagnosis_cases import Engine, Trainer

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Engine()

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer()
"""
LOOSE = ["mismatch.shifted_rows <= 99", "mismatch.mean_abs <= 9", "mismatch.k3 <= 99", "mismatch.rows_over_half <= 99"]
LOOSE += ["mismatch.first_token_mean_abs <= 9", "mismatch.last_token_mean_abs <= 9"]
LOOSE += ["mismatch.low_probability_mean_abs <= 9", "mismatch.mean_ratio in [0, 99]"]
LOOSE += ["mismatch.second_order_gap in [-9, 9]"]


@pytest.fixture
def few_faults(monkeypatch):
    """Only a fault that applies to any engine, and one that needs a part of ours."""
    chosen = {name: FAULTS[name] for name in ("shift", "dropout", "silent_eviction")}
    monkeypatch.setattr("rlcheck.faults.registry.FAULTS", chosen)


def test_a_stack_learns_what_its_thresholds_would_have_caught(inner, few_faults):
    result = inner("--rlcheck-selftest", conftest=MINE)
    result.stdout.fnmatch_lines(
        [
            "threshold * false alarm * sees beyond it",
            "mismatch.mean_abs * <= 0.0001 *e-* * nats",
            "mismatch.shifted_rows * == 0 * 0 (exact) * anything",
            "fault * cause * caught by * named",
            "shift * shifted * shifted 0.9*",
            "dropout * dropout_on * - cannot be planted here: *",
            "silent_eviction * stale_consumed * - no check of this stack looks at it",
        ]
    )
    assert result.ret == 0


def test_thresholds_that_see_nothing_are_found_out(inner, few_faults):
    result = inner(
        "--rlcheck-selftest", ini="rlcheck_thresholds =" + "".join(f"\n    {line}" for line in LOOSE), conftest=MINE
    )
    result.stdout.fnmatch_lines(["shift * NOTHING*", "not caught: shift"])
    assert result.ret == 1


def test_an_inner_run_repeats_no_argument_that_would_write_or_recurse():
    given = [
        "--rlcheck",
        "--rlcheck-selftest",
        "--junitxml",
        "a.xml",
        "--rlcheck-json=b",
        "--rlcheck-seed",
        "3",
        "tests",
    ]
    assert selftest.inner(given) == ["--rlcheck-seed", "3", "tests"]


def test_what_is_built_once_is_shared_by_all_runs(pytester):
    pytester.makeconftest(MINE.replace("return Engine()", "print('BUILT'); return Engine()"))
    stage = Stage([str(pytester.path), "--rootdir", str(pytester.path), "-s"])
    outputs = [stage.run(None, more=["-k", "shifted"]).output for _ in range(2)]
    assert ["BUILT" in output for output in outputs] == [True, False]
