"""What a run says: terminal, JSON, junit, and what is left of a run that was killed."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from rlcheck.report.json_file import write_atomically

CONFTEST = """
import pytest
from fakes import FakeEngine, FakeTrainer

@pytest.fixture(scope="session")
def rlcheck_engine():
    return FakeEngine("mine")

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return FakeTrainer("mine", offset={offset})
"""
SPOILT = """
import numpy as np
import pytest
from fakes import FakeEngine, FakeTrainer

class Spoilt(FakeEngine):
    def sample(self, prompts, params):
        return super().sample(prompts, params).replace({columns})

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Spoilt("mine")

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return FakeTrainer("mine")
"""
HEALTHY, BROKEN = CONFTEST.format(offset=0), CONFTEST.format(offset=0.4)
MEASUREMENT = {
    *("name", "variant", "value", "low", "high", "level", "kind", "unit", "n"),
    *("smallest_detectable", "threshold", "source", "verdict"),
}


def report_of(pytester):
    return json.loads((pytester.path / "report.json").read_text())


def test_json_schema(inner, pytester):
    inner("--rlcheck-json", "report.json", conftest=BROKEN)
    report = report_of(pytester)
    assert (report["schema"], report["complete"], report["exit_status"]) == (1, True, 1)
    assert {"python", "torch", "transformers", "pytest", "numpy"} <= set(report["environment"])
    assert report["settings"]["seed"] == 0
    [suite] = report["suites"]
    assert suite["id"] == "conftest.py"
    assert suite["overrides"] == ["rlcheck_engine", "rlcheck_trainer"]
    assert suite["engine"]["model"] == "mine"
    checks = {check["check"]: check for check in report["checks"]}
    agree = checks["mismatch::check_engine_and_trainer_agree"]
    assert agree["nodeid"] == "conftest.py::mismatch::check_engine_and_trainer_agree"
    assert agree["outcome"] == "failed"
    assert "mismatch.mean_abs" in agree["message"]
    assert all(set(m) == MEASUREMENT for m in agree["measurements"])
    mean_abs = next(m for m in agree["measurements"] if m["name"] == "mismatch.mean_abs")
    assert mean_abs["value"] == pytest.approx(0.4, abs=1e-4)
    assert (mean_abs["verdict"], mean_abs["n"], mean_abs["unit"]) == ("fail", 960, "nats")
    assert {check["outcome"] for check in report["checks"]} <= {"passed", "failed", "skipped"}


def test_numbers_that_json_lacks_are_strings(pytester):
    pytester.makepyfile(
        """
        def test_infinite(rlcheck_measure):
            rlcheck_measure("own.number", float("inf"))
            rlcheck_measure("own.other", float("nan"))
        """
    )
    pytester.runpytest_inprocess("--rlcheck-json", "report.json")
    values = [m["value"] for check in report_of(pytester)["checks"] for m in check["measurements"]]
    assert values == ["inf", "nan"]


def test_a_failure_says_number_threshold_source_and_what_it_looks_like(inner):
    result = inner("-k", "trainer_agree", conftest=BROKEN)
    result.stdout.fnmatch_lines(
        [
            "mismatch.mean_abs = 0.4 ± * nats (n = 960), must be <= 0.0001; this n can see * beyond it",
            "    threshold from: slime: 0.1 in CI;*",
            "this looks like:",
            "  - *: * (confidence *)",
            "      evidence: *",
            "      look at: *",
            "measured beside it:",
        ]
    )
    assert "def check_" not in result.stdout.str()


def test_the_section_reads_at_80_columns(inner):
    result = inner(conftest=HEALTHY)
    start = next(i for i, line in enumerate(result.outlines) if line.strip("= ") == "rlcheck")
    assert max(map(len, result.outlines[start:])) <= 80
    result.stdout.fnmatch_lines(["contract::check_logprob_contract * PASSED", "ok   errors *0 *n=30*== 0"])
    result.stdout.fnmatch_lines(["*checks, * numbers: * pass, 0 fail, 0 undecided, * reported"])


def test_verbose_shows_each_source(inner):
    result = inner("-v", "-k", "shifted", conftest=HEALTHY)
    result.stdout.fnmatch_lines(["ok   shifted_rows*", "     never in a healthy stack"])


def test_undecided_is_a_skip_that_says_what_it_needs_and_strict_fails_it(inner):
    few = ("--rlcheck-tokens", "64", "-k", "surprisal", "-rs")
    result = inner(*few, conftest=HEALTHY)
    assert result.parseoutcomes()["skipped"] == 1
    result.stdout.fnmatch_lines(["*undecided, needs about n = *"])
    result.stdout.fnmatch_lines(["1 undecided for want of samples: check_surprisal_equals_entropy"])
    strict = inner(*few, "--rlcheck-strict", conftest=HEALTHY)
    assert strict.parseoutcomes()["failed"] == 1


def test_a_budget_stops_the_looks(inner):
    result = inner("--rlcheck-budget", "0", "-k", "surprisal", "-rs", conftest=HEALTHY)
    result.stdout.fnmatch_lines(["*undecided, needs about n = * (now 960)*"])


def test_a_real_exception_wins_and_carries_the_numbers(pytester):
    pytester.makepyfile(
        """
        def test_breaks(rlcheck_measure):
            rlcheck_measure("mismatch.shifted_rows", 3)
            raise KeyError("lost")
        """
    )
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["E *KeyError: 'lost'", "*rlcheck measurements*", "FAIL shifted_rows * == 0"])


def test_a_check_that_measures_nothing_is_no_pass(inner, third_party):
    third_party("idle", "def check_idle(rlcheck_engine, rlcheck_measure): pass")
    result = inner("-k", "idle", "-rs", conftest=HEALTHY)
    result.stdout.fnmatch_lines(["*nothing judged: no number was measured*"])


def test_missing_logprobs_everywhere_is_no_pass(inner):
    blind = SPOILT.format(columns="engine_logprobs=np.full(960, np.nan, np.float32)")
    result = inner("-k", "mismatch", "-rs", conftest=blind)
    assert set(result.parseoutcomes()) == {"skipped", "deselected"}
    result.stdout.fnmatch_lines(["*no trained token has a log-prob on both sides*"])


def test_unsound_rollouts_fail_the_contract_and_skip_the_rest(inner):
    positive = SPOILT.format(columns="engine_logprobs=np.full(rollouts.n_tokens, 0.5, np.float32)")
    result = inner("-rs", conftest=positive)
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert "passed" not in outcomes
    result.stdout.fnmatch_lines(["*engine_logprobs: a positive log-prob (960 in all, first in row 0)*"])
    result.stdout.fnmatch_lines(["*the rollouts hold errors: see contract::check_logprob_contract*"])


@pytest.mark.parametrize(
    ("logprobs", "message"),
    [
        (
            "[row[1:] for row in super().logprobs(r)]",
            "*trainer's log-probs: row 0 has 31 entries for 32 response tokens*",
        ),
        ("super().logprobs(r)[1:]", "*trainer's log-probs: 29 rows for 30 responses*"),
        (
            "[row * 0 + 2 for row in super().logprobs(r)]",
            "*row 0 has a positive log-prob, 2: no probability exceeds 1*",
        ),
    ],
)
def test_a_trainer_that_answers_wrongly_is_one_clear_line(inner, logprobs, message):
    odd = f"""
class Odd(FakeTrainer):
    def logprobs(self, r, *, batch_size=None):
        return {logprobs}
"""
    conftest = HEALTHY.replace("FakeTrainer(", "Odd(", 1).replace("\n@pytest", odd + "\n@pytest", 1)
    result = inner("-k", "trainer_agree", conftest=conftest)
    result.stdout.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str()
    assert "pairs.py" not in result.stdout.str()


def test_junit_carries_readable_numbers(inner, pytester):
    inner("--junitxml", "junit.xml", "-k", "trainer_agree", conftest=HEALTHY)
    properties = ElementTree.parse(pytester.path / "junit.xml").getroot().iter("property")
    found = {p.get("name"): p.get("value") for p in properties}
    assert found["mismatch.mean_abs"].endswith("nats <= 0.0001 pass")


def test_numbers_of_a_killed_worker_survive(inner, pytester):
    killer = (
        HEALTHY
        + """
import os
@pytest.fixture(autouse=True)
def die_late(request):
    if "trainer_agree" in request.node.name:
        recorder = request.getfixturevalue("rlcheck_measure")
        recorder("own.before_death", 42)
        os._exit(1)
"""
    )
    inner("-n", "1", "--max-worker-restart", "0", "--rlcheck-json", "report.json", process=True, conftest=killer)
    crashed = [check for check in report_of(pytester)["checks"] if "own.before_death" in str(check["measurements"])]
    assert [check["outcome"] for check in crashed] == ["crashed"]


def test_json_is_whole_or_absent(tmp_path, monkeypatch):
    target = tmp_path / "report.json"
    target.write_text("old")
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("object()", "*rlcheck_engine is a object without sample(prompts, params)*"),
        ("type('E', (), {'sample': lambda self, p, q: [1]})()", "*sample returned a list, not rlcheck.Rollouts*"),
    ],
)
def test_what_is_no_engine_is_one_clear_line(inner, engine, message):
    result = inner("-k", "logprob_contract", conftest=HEALTHY.replace('FakeEngine("mine")', engine))
    result.stdout.fnmatch_lines([message])
    assert "blocks.py" not in result.stdout.str()


def test_an_engine_that_states_no_dtype_gets_the_loosest_thresholds_and_a_line(inner):
    silent = HEALTHY.replace('FakeEngine("mine")', 'FakeEngine("mine", dtype="odd")')
    result = inner("-v", "-k", "trainer_agree", conftest=silent)
    result.stdout.fnmatch_lines(["*dtype not stated*loosest thresholds apply", "ok   mean_abs*<= 0.4", "*loosest row*"])


@pytest.mark.parametrize(("declared", "outcome"), [(0.2, "passed"), (0.01, "failed")])
def test_missing_logprobs_are_judged_against_what_is_declared(inner, declared, outcome):
    gaps = SPOILT.format(columns="engine_logprobs=np.where(np.arange(960) % 10, -1, np.nan).astype(np.float32)")
    declares = f"""
@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {{"missing_logprobs": {declared}}}
"""
    assert inner("-k", "logprob_contract", conftest=gaps + declares).parseoutcomes()[outcome] == 1
    assert inner("-k", "logprob_contract", conftest=gaps).parseoutcomes()["passed"] == 1


def test_uids_may_repeat_from_call_to_call(inner):
    counted = SPOILT.format(columns="uid=np.arange(len(prompts)).astype(object)")
    assert inner("-k", "surprisal", conftest=counted).parseoutcomes()["passed"] == 1
