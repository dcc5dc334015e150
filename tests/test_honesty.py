"""No green that measured nothing, no red on a healthy stack: cases that once went wrong."""

import json

import pytest

from rlcheck import RlcheckError, models
from rlcheck.thresholds import Thresholds

STACK = """
import numpy as np
import pytest
from fakes import FakeEngine, FakeTrainer, log_policy

class Engine(FakeEngine):
    def sample(self, prompts, params):
        rollouts = super().sample(prompts, params)
        {engine}
        return rollouts

class Trainer(FakeTrainer):
    calls = 0
    def logprobs(self, rollouts, *, batch_size=None):
        self.calls += 1
        rows = super().logprobs(rollouts)
        {trainer}
        return rows

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Engine("mine")

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer("mine")
"""


def stack(engine="pass", trainer="pass"):
    return STACK.format(engine=engine, trainer=trainer)


def outcomes(result):
    return {key: value for key, value in result.parseoutcomes().items() if key != "deselected"}


def test_a_trainer_that_answers_nan_is_an_error(inner):
    result = inner("-k", "trainer_agree", conftest=stack(trainer="rows[3][5:] = np.nan"))
    result.stdout.fnmatch_lines(["*the trainer's log-probs: row 3 has NaN for a trained token (27 in all)*"])


def test_a_token_impossible_for_the_trainer_fails(inner):
    result = inner("-k", "trainer_agree", conftest=stack(trainer="rows[3][5] = -np.inf"))
    result.stdout.fnmatch_lines(["mismatch.impossible_tokens = 1 tokens (n = 960), must be == 0"])


def test_surprisal_of_nothing_is_no_pass(inner):
    blind = stack(engine="rollouts = rollouts.replace(engine_logprobs=np.full(960, np.nan))")
    assert outcomes(inner("-k", "surprisal", conftest=blind)) == {"skipped": 1}


@pytest.mark.parametrize(
    ("engine", "trainer"),
    [
        ("pass", "if self.calls > 1: rows[0][3] = np.nan"),
        ("rollouts = rollouts.replace(mask=rollouts.positions < 2)", "if self.calls > 1: rows[0] -= 1e-4"),
    ],
)
def test_scoring_differently_the_second_time_fails(inner, engine, trainer):
    result = inner("-k", "scoring_repeats", conftest=stack(engine, trainer))
    assert outcomes(result) == {"failed": 1}


def test_a_trainer_fixed_at_temperature_one_is_no_fault(inner):
    fixed = stack(trainer="rows = [log_policy(1.0)[row].astype(np.float32) for row in rollouts.responses()]")
    result = inner("-k", "temperature_is_shared", "-rs", conftest=fixed)
    assert outcomes(result) == {"skipped": 1}
    result.stdout.fnmatch_lines(["*hardly depend on rollouts.params.temperature*"])


HANDED_OVER = """
import numpy as np
import pytest
from fakes import FakeEngine
from rlcheck import SamplingParams

@pytest.fixture(scope="session")
def {fixture}():
    rollouts = FakeEngine().sample([[3]] * 40, SamplingParams(seed=0)){entropy}
    rollouts = rollouts.replace(old_logprobs=rollouts.engine_logprobs + np.float32({offset}))
    return {value}
"""


@pytest.mark.parametrize(("offset", "expected"), [(0.0, "passed"), (2.0, "failed")])
@pytest.mark.parametrize(
    ("fixture", "value"), [("rlcheck_rollouts", "rollouts"), ("rlcheck_sample_blocks", "lambda k: rollouts")]
)
def test_rollouts_handed_over_are_checked(inner, fixture, value, offset, expected):
    text = HANDED_OVER.format(fixture=fixture, value=value, entropy="", offset=offset)
    result = inner("-k", "trainer_agree or last_trained", conftest=text)
    assert outcomes(result) == {expected: 2}
    result.stdout.fnmatch_lines(["*mean_abs* n=1280 *"])


def test_rollouts_handed_over_never_meet_the_embedded_engine(inner):
    text = HANDED_OVER.format(
        fixture="rlcheck_sample_blocks", value="lambda k: rollouts", entropy=".replace(entropy=None)", offset=0
    )
    result = inner("-k", "surprisal", "-rs", conftest=text)
    assert outcomes(result) == {"skipped": 1}
    result.stdout.fnmatch_lines(["*no entropy: fill Rollouts.entropy*"])


def test_an_engine_from_a_plugin_never_meets_the_default_trainer(inner, pytester):
    pytester.syspathinsert()
    pytester.makepyfile(my_fixtures=stack().split('@pytest.fixture(scope="session")\ndef rlcheck_trainer')[0])
    result = inner("-p", "my_fixtures", "-k", "mismatch")
    assert "failed" not in outcomes(result)


def test_rows_that_lack_a_column_cost_the_others_nothing(inner, pytester):
    rows = [
        {"prompt_ids": [3], "response_ids": [4, 5], "engine_logprobs": [-1.0, -2.0], "reward": 1.0} for _ in range(3)
    ]
    del rows[1]["engine_logprobs"]
    rows[2]["mask"] = [1, 0]
    rows[2]["note"] = "a\u2028b"
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (pytester.path / "dump.jsonl").write_text(text, encoding="utf-8")
    from rlcheck.readers import read_rollouts

    rollouts = read_rollouts(str(pytester.path / "dump.jsonl"))
    assert rollouts.mask.tolist() == [True, True, True, True, True, False]
    assert rollouts.problems()[0].count == 2
    assert rollouts.extra["note"].tolist() == [None, None, "a\u2028b"]


def test_two_modules_of_a_user_do_not_share_rollouts(pytester, monkeypatch, inner):
    for name in ("one", "two"):
        test = f"\ndef test_{name}(rlcheck_engine, rlcheck_rollouts): assert rlcheck_engine.calls\n"
        pytester.makepyfile(**{f"test_{name}": stack() + test})
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_a_conftest_full_of_proxies_is_no_trouble(inner):
    proxy = """
class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("working outside of application context")
current_app = Proxy()
"""
    assert outcomes(inner("-k", "trainer_agree", conftest=stack() + proxy)) == {"passed": 1}


@pytest.mark.parametrize("value", ["", "1", "eight"])
def test_a_world_of_one_or_none_is_fine(inner, monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    assert outcomes(inner("-k", "trainer_agree", conftest=stack())) == {"passed": 1}


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(RlcheckError, match="--rlcheck-device mps: this machine"):
        models.load("embedded", "float32", "mps")


def test_a_range_of_ones_own_keeps_its_digits_and_the_resolution():
    rules = Thresholds.from_lines([("mismatch.mean_ratio in [0.995, 1.005]", "here")])
    threshold = rules.find("mismatch.mean_ratio", "", "bfloat16")
    assert threshold.text == "in [0.995, 1.005]"
    assert threshold.verdict(1.0, 0.994, 1.006) == "pass"


def test_a_run_that_stopped_early_is_not_complete(inner, pytester):
    broken = stack(trainer="rows = [row + np.float32(0.4) for row in rows]")
    for arguments, complete in ((["-x"], False), ([], True)):
        inner("--rlcheck-json", "report.json", *arguments, conftest=broken)
        assert json.loads((pytester.path / "report.json").read_text())["complete"] is complete


def test_numbers_survive_a_finaliser_that_raises(inner, pytester):
    closing = stack().replace('    return Engine("mine")', '    yield Engine("mine")\n    raise OSError("port in use")')
    inner("--rlcheck-json", "report.json", "-k", "shifted", conftest=closing)
    [check] = json.loads((pytester.path / "report.json").read_text())["checks"]
    assert check["outcome"] == "error"
    assert [m["name"] for m in check["measurements"]] == ["mismatch.shifted_rows"]


def test_errors_are_told_once_and_users_own_are_left_alone(inner, pytester):
    result = inner("-k", "trainer_agree", conftest=stack(trainer="rows[0][0] = np.nan"))
    assert "During handling" not in result.stdout.str()
    pytester.makepyfile(
        """
        import pytest
        from rlcheck import RlcheckError

        @pytest.mark.xfail(raises=RlcheckError)
        def test_own():
            raise RlcheckError("mine")
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(xfailed=1)


def test_a_suite_holds_the_checks_that_its_override_can_change(inner):
    text = "import pytest\n@pytest.fixture(scope='session')\ndef rlcheck_chat(): return None\n"
    result = inner(conftest=text)
    result.stdout.fnmatch_lines(["rlcheck: suite conftest.py: 1 checks, overrides rlcheck_chat"])
