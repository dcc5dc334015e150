"""The checks of the contract's probability half, run by pytest on stacks that keep or break what they promise."""

import pytest

STACK = """
import numpy as np
import pytest
from fakes import LOGITS, FakeEngine, FakeTrainer, log_policy
from rlcheck import RlcheckError, Rollouts

def policy(params):
    logits = log_policy(params.temperature)
    if params.top_k:
        logits = np.where(logits >= np.sort(logits)[-params.top_k], logits, -np.inf)
    return logits - np.log(np.exp(logits).sum())

class Engine(FakeEngine):
    def sample(self, prompts, params):
        {before}
        generator = np.random.default_rng(params.seed)
        at = policy(params)
        ids = generator.choice(len(at), size=(len(prompts), params.max_tokens), p=np.exp(at))
        rollouts = Rollouts.from_lists(prompts, ids, params=params, engine_logprobs=at[ids].astype(np.float32))
        {after}
        return rollouts

    def distribution(self, rollouts, positions):
        return np.tile(policy(rollouts.params).astype(np.float32), (len(positions), 1))

class Trainer(FakeTrainer):
    def logprobs(self, rollouts, *, batch_size=None):
        at = {scored}
        rows = [at[row].astype(np.float32) for row in rollouts.responses()]
        {trained}
        return rows

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Engine("mine")

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer("mine")

@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {declared}
"""


def stack(before="pass", after="pass", scored="policy(rollouts.params)", trained="pass", declared="{}"):
    return STACK.format(before=before, after=after, scored=scored, trained=trained, declared=declared)


def failed(result):
    return {line.split("::")[-1].split()[0] for line in result.outlines if line.startswith("FAILED ")}


GREEN = {
    "healthy": {},
    "placeholders outside the mask": {
        "after": "rollouts = rollouts.replace(mask=rollouts.positions != 3, "
        "engine_logprobs=np.where(rollouts.positions == 3, 0, rollouts.engine_logprobs))"
    },
    "exact zeros where one token survives": {
        "after": "rollouts = rollouts.replace(engine_logprobs=np.where(rollouts.positions == 0, 0, "
        "rollouts.engine_logprobs), response_ids=np.where(rollouts.positions == 0, 1, rollouts.response_ids))",
        "trained": "rows = [np.where(np.arange(len(row)) == 0, 0, row) for row in rows]",
    },
    "log-probs missing on a few tokens": {
        "after": "rollouts = rollouts.replace(engine_logprobs=np.where(rollouts.positions % 9 == 2, np.nan, "
        "rollouts.engine_logprobs))"
    },
    "a mixture of experts": {
        "trained": "rows = [row + np.random.default_rng(int(sum(ids))).normal(0, 0.15, len(row)).astype(np.float32) "
        "- np.float32(0.15**2 / 2) for row, ids in zip(rows, rollouts.responses())]; "
        "rows = [np.minimum(row, 0) for row in rows]",
        "declared": "{'moe': True}",
    },
    "a trainer without truncation": {"scored": "policy(rollouts.params.replace(top_k=0))"},
    "an engine that refuses": {"before": "if params.top_k: raise RlcheckError('top_k is not supported')"},
    "a trainer at temperature 1, declared": {
        "scored": "policy(rollouts.params.replace(temperature=1.0))",
        "declared": "{'sampling': ()}",
    },
}


@pytest.mark.parametrize("case", GREEN.values(), ids=GREEN)
def test_what_must_stay_green(inner, case):
    result = inner("-k", "contract or mismatch", "-rs", conftest=stack(**case))
    assert not failed(result)
    assert "errors" not in result.parseoutcomes()


RED = {
    "check_shaping_is_shared[top_k]": [
        {"scored": "policy(rollouts.params.replace(top_k=0))", "declared": "{'sampling': ('top_k',)}"},
        {"before": "from dataclasses import replace; asked, params = params, params.replace(top_k=0)",
         "after": "rollouts = rollouts.replace(params=asked)"},
    ],
    "check_temperatures_are_applied[0.5]": [{"scored": "policy(rollouts.params.replace(temperature=1.0))"}],
    "check_probabilities_sum_to_one": [{"after": "self.distribution = lambda r, p: np.full((len(p), 40), -3.0)"}],
    "check_logprob_is_the_sampled_tokens": [
        {"after": "rollouts = rollouts.replace(engine_logprobs=np.full(rollouts.n_tokens, at.max()))"}
    ],
}  # fmt: skip


@pytest.mark.parametrize(("check", "case"), [(check, case) for check, cases in RED.items() for case in cases])
def test_a_broken_promise_fails(inner, check, case):
    result = inner("-k", check.split("[")[0], conftest=stack(**case))
    assert check in failed(result)


def test_what_the_engine_refuses_is_skipped_with_its_reason(inner):
    result = inner("-k", "shaping", "-rs", conftest=stack(**GREEN["an engine that refuses"]))
    result.stdout.fnmatch_lines(["*the engine refuses top_k: top_k is not supported*"])


def test_an_undeclared_convention_is_reported(inner):
    result = inner("-k", "shaping and top_k", conftest=stack(**GREEN["a trainer without truncation"]))
    result.stdout.fnmatch_lines(["*nothing judged: the trainer ignores top_k*", "-  *kept_mass[[]top_k=4[]]*"])


def test_a_failing_surprisal_says_how_the_tokens_look_drawn(inner):
    hot = "params_asked, params = params, params.replace(temperature=0.5)"
    raw = "rollouts = rollouts.replace(params=params_asked, engine_logprobs=log_policy(1.0)[rollouts.response_ids])"
    result = inner(
        "-k", "surprisal", conftest=stack(before=hot, after=raw) + "\nEngine.generation_config = {'top_k': 5}\n"
    )
    result.stdout.fnmatch_lines(["*generation_config asks for {'top_k': 5}*", "*look as if drawn at 0.[45]* times*"])


TRUNCATED = """
import numpy as np
import pytest
from rlcheck import Rollouts, SamplingParams

@pytest.fixture(scope="session")
def rlcheck_rollouts():
    policy = np.log([0.5, 0.37, 0.13])
    ids = np.random.default_rng(0).choice(2, (40, 32), p=[0.5 / 0.87, 0.37 / 0.87])
    engine = (policy - np.log(0.87))[ids]
    return Rollouts.from_lists(
        [[0]] * 40, ids, engine_logprobs=engine, old_logprobs={old}, params=SamplingParams(top_k=2)
    )

@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {{"unfiltered": True, "dtype": "float32"}}
"""


@pytest.mark.parametrize(("old", "expected"), [("engine", set()), ("policy[ids]", {"check_ratio_averages_to_one"})])
def test_a_trainer_over_the_whole_vocabulary_shows_the_mass_that_was_kept(inner, old, expected):
    result = inner("-k", "ratio_averages", conftest=TRUNCATED.format(old=old))
    assert failed(result) == expected
    if expected:
        result.stdout.fnmatch_lines(["*mismatch.kept_mass = 0.87 *", "*truncated_sampling*"])
