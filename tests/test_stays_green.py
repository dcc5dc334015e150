"""What was reported as a bug somewhere and is none: each of these stacks stays green, and is taken for nothing."""

from dataclasses import replace

import pytest
from function_checks import beyond, ratio, token_mean
from log_checks import failures as log_failures
from log_checks import recorded
from pipeline_cases import BASE
from sync_cases import failures as sync_failures
from sync_cases import planted, stack, trial_of
from test_healthy_styles import critic
from training_cases import failures as loop_failures
from training_cases import mini

from rlcheck import advantages, losses
from rlcheck.episodes import concatenate
from rlcheck.simulation.pipeline import simulate

STACK = """
import numpy as np
import pytest
from fakes import FakeEngine, FakeTrainer

class Engine(FakeEngine):
    def sample(self, prompts, params):
        rollouts = super().sample(prompts, params)
        return {engine}

class Trainer(FakeTrainer):
    def logprobs(self, rollouts, *, batch_size=None):
        noise = np.random.default_rng(0)
        return [{trainer} for row in super().logprobs(rollouts)]

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Engine(dtype={dtype!r})

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer(dtype={dtype!r})

@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {declared}
"""


@pytest.fixture
def model_checks(inner):
    """Outcomes of contract and mismatch on a stack in memory whose engine and trainer answer as given."""

    def outcomes(*arguments, engine="rollouts", trainer="row", dtype="float32", **declared):
        text = STACK.format(engine=engine, trainer=trainer, dtype=dtype, declared=declared)
        found = inner("-k", "contract or mismatch", *arguments, conftest=text).parseoutcomes()
        assert found["passed"] > 10
        return {key: found.get(key, 0) for key in ("failed", "errors")}

    return outcomes


GREEN = {"failed": 0, "errors": 0}

# -- engine and trainer ------------------------------------------------------------------------------


@pytest.mark.parametrize("placeholder", [0.0, -9999.0, float("nan")])
def test_placeholders_outside_the_mask(model_checks, placeholder):
    """Tokens that are not trained carry any number, and nobody compares them."""
    tail = "rollouts.positions >= 24"
    spoilt = f"np.where({tail}, np.float32({placeholder!r}), rollouts.engine_logprobs)".replace("nan)", "'nan')")
    assert model_checks(engine=f"rollouts.replace(mask=~({tail}), engine_logprobs={spoilt})") == GREEN


def test_rounding_of_each_token_adds_up_over_a_long_row(model_checks):
    """960 tokens of bf16 noise move a sequence ratio far from 1; no token is wrong."""
    noisy = "row + noise.normal(0, 0.03, len(row)).astype(np.float32)"
    assert model_checks("--rlcheck-tokens", "9600", trainer=noisy, dtype="bfloat16") == GREEN


def test_one_rare_token_makes_one_k3_large(model_checks):
    """-5 against -15 gives k3 = 9 one way and 22,015 the other; both are shown, with their direction."""
    rare = "row - np.where((noise.random(len(row)) < 1e-3) & (row < -4), np.float32(0.5), 0).astype(np.float32)"
    assert model_checks(trainer=rare, dtype="bfloat16") == GREEN


def test_log_probs_that_a_few_tokens_lack(model_checks):
    """NaN on a declared share of tokens, which the stack takes for ratio 1."""
    some = "np.where(np.arange(rollouts.n_tokens) % 100 == 7, np.float32('nan'), rollouts.engine_logprobs)"
    assert model_checks(engine=f"rollouts.replace(engine_logprobs={some})", missing_logprobs=0.02) == GREEN


def test_metrics_of_zero_that_a_framework_did_not_compute(model_checks):
    """A mean of 0 beside ``valid`` = 0 says nothing; numbers are taken from tokens alone."""
    columns = "{name: np.zeros(len(rollouts)) for name in ('rollout_probs_diff_valid', 'rollout_probs_diff_mean')}"
    assert model_checks(engine=f"rollouts.replace(extra={columns})") == GREEN


def test_a_mixture_of_experts_routes_a_few_tokens_otherwise(model_checks):
    """k3 of 1e-3 to 1e-1 where a dense model has 1e-5 to 1e-3."""
    routed = "row + noise.normal(0, 0.15, len(row)).astype(np.float32)"
    assert model_checks(trainer=routed, dtype="bfloat16", moe=True) == GREEN
    assert model_checks(trainer=routed, dtype="bfloat16")["failed"]


def test_a_model_with_relative_positions_needs_no_position_ids(inner):
    """Left pads shift all positions of a row alike, which a rotary model does not see."""
    text = """
import numpy as np
import pytest
from rlcheck.faults import FAULTS

@pytest.fixture(scope="session")
def rlcheck_trainer(rlcheck_trainer):
    return FAULTS["no_position_ids"].plant(rlcheck_trainer, np.random.default_rng(0))
"""
    arguments = ("--rlcheck-model", "embedded", "--rlcheck-dtype", "float32", "-k", "padding or neighbours or micro")
    inner(*arguments, conftest=text).assert_outcomes(passed=3, deselected=36)


def test_a_log_prob_of_zero_where_one_token_survives(inner):
    """Top-k 1, or a grammar, leaves one token of probability 1 on both sides."""
    text = """
import pytest
from rlcheck import SamplingParams

@pytest.fixture(scope="session")
def rlcheck_sample_blocks(rlcheck_engine, rlcheck_prompts):
    return lambda k: rlcheck_engine.sample(rlcheck_prompts[:30], SamplingParams(top_k=1, seed=k, max_tokens=16))
"""
    arguments = ("--rlcheck-model", "embedded", "--rlcheck-dtype", "float32", "-k", "placeholder or closing or agree")
    found = inner(*arguments, conftest=text).parseoutcomes()
    assert (found["passed"] >= 3, found.get("failed", 0)) == (True, 0)


# -- weight sync -------------------------------------------------------------------------------------


def test_a_tied_head_is_not_sent():
    """Its embedding is, and that is the same tensor."""
    engine, trainer = stack("embedded-tied")

    def push():
        weights = {name: weight for name, weight in trainer.weights().items() if name != "lm_head.weight"}
        engine.model.load_state_dict(weights, strict=False)
        engine.reset_prefix_cache()
        engine.version += 1

    assert not sync_failures(trial_of(engine, trainer, push))


def test_the_cache_is_kept_across_an_update_in_flight_by_declaration():
    trial = trial_of(*planted("cache_kept", 1))
    assert sync_failures(trial)
    assert not sync_failures(trial, kv_across_sync=True)


# -- corrections, losses, advantages -------------------------------------------------------------------


def test_one_update_a_batch_has_a_ratio_of_one():
    def loss(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
        return token_mean(-ratio(logprobs, logprobs.detach(), mask) * advantages, mask)

    assert beyond("rlcheck_policy_loss", loss) == set()


def test_decoupled_ppo_clips_nothing_in_its_only_minibatch():
    assert beyond("rlcheck_policy_loss", losses.from_name("decoupled_ppo")) == set()
    assert {entry["policy_ratio"] for entry in mini().on_policy(3, 0).metrics} == {1.0}


def test_gspo_clips_two_sequences_in_five():
    assert beyond("rlcheck_policy_loss", losses.from_name("gspo", clip_low=3e-4, clip_high=4e-4)) == set()


@pytest.mark.parametrize("name", ["ppo", "decoupled_ppo", "cispo", "gspo", "opsm"])
def test_several_iterations_over_a_batch_by_declaration(name):
    assert beyond("rlcheck_policy_loss", losses.from_name(name), {"batch_reuse": 4, "max_staleness": 2}) == set()


@pytest.mark.parametrize("name", ["leave_one_out", "group_mean", "batch_normalised", "critic"])
def test_advantages_of_any_family(name):
    function = critic if name == "critic" else advantages.from_name(name)
    assert beyond("rlcheck_advantage", lambda rewards, group_ids: function(rewards, group_ids)) == set()


# -- loops and pipelines -------------------------------------------------------------------------------


def test_a_loop_that_does_not_repeat_itself_bit_by_bit():
    """It is compared with its own repeat."""

    class Noisy:
        def __init__(self):
            self.loop, self.calls = mini(), 0

        def __getattr__(self, name):
            def noisy(*arguments):
                self.calls += 1
                trace = getattr(self.loop, name)(*arguments)
                return replace(trace, parameters_sha256=[f"{one}{self.calls}" for one in trace.parameters_sha256])

            return noisy

    for topic in ("lag0", "lag_is_lag"):
        assert loop_failures(topic, loop=Noisy()) == {}


def test_two_loops_alike_prove_nothing_where_no_weight_moved():
    """So this one is not green: lag 0 holds bit by bit, and the check still fails."""
    assert "nothing_trained" in loop_failures("lag0", loop=mini(learning_rate=0.0))["check_lag0"]
    assert loop_failures("lag0", loop=mini()) == {}


def test_more_episodes_than_the_bound_are_started_by_declaration():
    made = simulate(BASE.but(oversample=1.5))
    assert log_failures(recorded(made.episodes, made.steps, BASE, oversample=1.5)) == {}


def test_a_batch_is_replayed_by_declaration():
    made = simulate(BASE)
    early = made.episodes.select(made.episodes.trained_step < BASE.steps - 1)
    again = replace(early, trained_step=early.trained_step + 1, trained_version=early.trained_version + 1)
    assert log_failures(recorded(concatenate([made.episodes, again]), made.steps, batch_reuse=2)) == {}
