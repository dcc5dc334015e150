"""The checks of lag 0, lag and staleness: healthy loops are green, planted faults are caught and named.

``RLCHECK_SEEDS=20`` sweeps more seeds.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import SEEDS
from training_cases import failures, mini, run

from rlcheck import RlcheckError, TrainingTrace, corrections, declare
from rlcheck.faults import FAULTS, remembered
from rlcheck.tinyagent import REV, TinyAgentLoop
from rlcheck.tinyagent.dose_response import LoopArms, MicroArms
from rlcheck.traces import LoopRuns, first_difference

ON_LOOPS = [name for name, fault in FAULTS.items() if fault.fixture == "rlcheck_training"]
ON_STALENESS = [name for name, fault in FAULTS.items() if fault.topics == ("staleness_dose_response",)]
RECIPES = [{}, {"epochs": 2, "minibatches": 2}, {"baseline": "group"}, {"recompute": False}]
SWEEP = len(SEEDS) > 3


def some_seeds(cases):
    """Every case at every seed in a sweep, else each at one of three."""
    return [(case, seed) for place, case in enumerate(cases) for seed in (SEEDS if SWEEP else [place % 3])]


STARTS = {  # the step named for each breaker of lag 0: the first whose rewards are not all equal, most often 0
    **dict.fromkeys(
        ("float64_rewards", "float64_weights", "ratio_against_mu", "mean_before_sum"), r"step \d: (losses|parameters)"
    ),
    "fused_adam": r"step \d: parameters",
    "other_threads": r"step \d: (samples|parameters)",
    **dict.fromkeys(("batch_is_shuffled",), "step 0: samples"),
    **dict.fromkeys(("evaluation_on_the_training_generator",), r"step \d: samples"),
    **dict.fromkeys(("optimiser_rebuilt",), r"step [1-3]: parameters"),
    **dict.fromkeys(("old_weights_on_resume", "sync_skipped"), r"they part at step [1-4]"),
}


SHOWS_ELSEWHERE = {"float64_rewards", "float64_weights", "ratio_against_mu", "mean_before_sum", "other_threads"}
"""Faults of the loss may round to an equal loss and show in the update only; threads may show in the samples."""


@pytest.fixture(scope="module")
def arms():
    return MicroArms(0)


@pytest.mark.parametrize(("recipe", "seed"), some_seeds(RECIPES))
def test_a_healthy_loop_never_fails(recipe, seed):
    for topic in ("lag0", "lag_is_lag"):
        assert failures(topic, loop=mini(**recipe), seed=seed) == {}


@pytest.mark.parametrize(("name", "seed"), some_seeds(ON_LOOPS))
def test_a_planted_fault_is_caught_and_named(name, seed):
    fault = FAULTS[name]
    loop = fault.plant(remembered.loop(), np.random.default_rng(seed))
    messages = failures(fault.topics[0], loop=loop, seed=seed, correction=None)
    assert messages, fault.summary
    message = "\n".join(messages.values())
    first = [text.split("this looks like:\n  - ")[-1].split(":")[0] for text in messages.values()]
    assert fault.cause in first or name in SHOWS_ELSEWHERE, message
    assert re.search(STARTS.get(name, ""), message)


@pytest.mark.parametrize("name", ["no_clone", "newest_version", "queue_one_short", "queue_one_long"])
def test_lag_counts_optimiser_steps_where_a_batch_takes_several(name):
    loop = FAULTS[name].plant(remembered.loop(minibatches=2), np.random.default_rng(0))
    assert failures("lag_is_lag", loop=loop)


def test_a_shared_module_passes_at_lag_0_and_fails_from_the_first_lag_on():
    loop = FAULTS["sampler_is_the_trainer"].plant(remembered.loop(), np.random.default_rng(0))
    assert failures("lag0", loop=loop, correction=None) == {}
    assert "not_apart[lag=1]" in failures("lag_is_lag", loop=loop)["check_lag_is_lag"]


def test_decoding_s_own_log_probs_are_why_a_correction_is_not_judged():
    found = run("lag0", loop=mini(recompute=False))["check_weights_are_one_at_lag0"]
    [corrected] = [m for m in found.measurements if m.name == "lag0.corrected"]
    assert corrected.value == 6
    assert re.search(r"mean \|d\| is .*e-0[78] nats", corrected.note)


def test_a_weight_that_is_not_one_is_caught():
    def weights(*, old_logprobs, engine_logprobs, mask):
        return mask * (1 + 2**-20)

    message = failures("lag0", loop=mini(), correction=weights)["check_weights_are_one_at_lag0"]
    assert "from step 0" in message
    assert "weights_not_one" in message


class Noisy:
    """A loop that does not repeat itself, as on most GPUs."""

    def __init__(self, loop):
        self.loop, self.calls = loop, 0

    def __getattr__(self, name):
        run = getattr(self.loop, name)

        def noisy(*arguments):
            self.calls += 1
            trace = run(*arguments)
            metrics = [entry | {"loss": entry["loss"] + 1e-7 * self.calls} for entry in trace.metrics]
            hashes = [f"{entry}{self.calls}" for entry in trace.parameters_sha256]
            return replace(trace, metrics=metrics, parameters_sha256=hashes)

        return noisy


def test_a_loop_that_does_not_repeat_itself_is_reported_not_failed():
    for topic in ("lag0", "lag_is_lag"):
        assert failures(topic, loop=Noisy(mini())) == {}
    found = run("lag0", loop=Noisy(mini()))["check_lag0"]
    notes = {m.name: m.note for m in found.measurements}
    assert "does not repeat itself" in notes["lag0.losses"]
    assert [m.verdict for m in found.measurements if m.name == "lag0.stale_versions"] == ["pass"]


def test_a_loop_that_does_not_repeat_itself_is_still_held_to_its_versions():
    loop = Noisy(FAULTS["old_weights_on_resume"].plant(mini(), np.random.default_rng(0)))
    assert "lag0_not_sync" in failures("lag0", loop=loop)["check_lag0"]


class OnPolicy:
    """The least that a loop can offer."""

    def __init__(self, **missing):
        self.loop, self.missing = mini(), missing

    def on_policy(self, steps, seed):
        return replace(self.loop.on_policy(steps, seed), **self.missing)


def test_a_loop_that_offers_less_is_told_what_to_provide():
    lag0, lag = (run(topic, loop=OnPolicy()) for topic in ("lag0", "lag_is_lag"))
    assert lag0["check_on_policy_consumes_new_weights"].having("pass")
    for reason in (lag0["check_lag0"], lag["check_lag_is_lag"], lag["check_versions_lag"]):
        assert "no off_policy(steps, seed, lag, correction)" in reason
    bare = run("lag0", loop=OnPolicy(versions=[], parameters_sha256=[], samples_sha256=[]))
    assert not bare["check_on_policy_consumes_new_weights"].having("fail")


def test_a_malformed_trace_is_told_so():
    with pytest.raises(RlcheckError, match=r"on_policy: versions has 1 entries for 6 steps: give one per step"):
        run("lag0", loop=OnPolicy(versions=[0]))
    with pytest.raises(RlcheckError, match=r"on_policy returned list: return rlcheck\.TrainingTrace"):
        LoopRuns(type("Loop", (), {"on_policy": lambda self, steps, seed: []})(), 0).on_policy()


def test_runs_are_compared_in_order_of_what_a_step_does():
    one = TrainingTrace([{"loss": 1.0, "reward": 0.5}] * 2, ["a", "b"], ["x", "y"])
    assert first_difference(one, one) is None
    assert first_difference(one, replace(one, parameters_sha256=["x", "z"])) == (1, "parameters")
    assert first_difference(one, replace(one, samples_sha256=["a", "c"], parameters_sha256=["x", "z"])) == (
        1,
        "samples",
    )
    assert first_difference(one, replace(one, metrics=[{"loss": 1.5}] * 2)) == (0, "losses")
    assert first_difference(one, replace(one, metrics=[{"loss": float("nan")}] * 2)) == (0, "losses")


# -- dose and response -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "seed"), some_seeds(["tis", "mis", "sequence_tis", "is", "none", "cis", "geometric_rejection"])
)
def test_the_family_never_fails_on_the_micro_agent(arms, name, seed):
    assert failures("staleness_dose_response", arms=arms, correction=name, seed=seed) == {}


@pytest.mark.parametrize("seed", SEEDS[:1] if not SWEEP else SEEDS)
def test_staleness_harms_in_order_and_weights_recover(seed):
    found = run("staleness_dose_response", arms=MicroArms(seed), seed=seed)
    assert [len(each.having("pass")) for each in found.values()] == [2, 3]


@pytest.mark.parametrize(("name", "seed"), some_seeds(ON_STALENESS))
def test_a_mutant_of_tis_is_caught_and_named(arms, name, seed):
    mutant = FAULTS[name].plant(None, np.random.default_rng(seed))
    messages = failures("staleness_dose_response", arms=arms, correction=mutant, seed=seed)
    [message] = messages.values()
    assert f"this looks like:\n  - {FAULTS[name].cause}:" in message


def test_an_inverted_ratio_is_caught_undeclared(arms):
    def inverted(*, old_logprobs, engine_logprobs, mask):
        return (engine_logprobs - old_logprobs).exp().clamp(max=2) * mask

    caught = failures("staleness_dose_response", arms=arms, correction=inverted)
    message = caught["check_weights_make_up_for_staleness"]
    assert "cosine_lost" in message
    assert "unrecovered" in message.split("measured beside it")[0]


def test_a_declared_correction_is_its_reference(arms):
    tis = corrections.from_name("tis")
    found = run("staleness_dose_response", arms=arms, correction=declare(tis, like=tis))[
        "check_weights_make_up_for_staleness"
    ]
    assert "staleness_dose_response.off_reference" in {m.name for m in found.having("pass")}


def test_a_float8_sampler_leaves_a_correction_nothing_to_do(arms):
    found = run("staleness_dose_response", arms=arms)["check_staleness_dose_response"]
    over = next(m for m in found.measurements if m.label == "staleness_dose_response.over_cap[fp8]")
    assert (over.value, over.verdict) == (0, "reported")
    assert "nothing to do" in over.note


def test_a_loop_of_the_user_s_own_is_reported_only():
    arms = LoopArms.of_foreign(mini(episodes=8), 0, slow=False)
    arms.steps = 9
    found = run("staleness_dose_response", arms=arms, correction=None)
    gains = found["check_staleness_dose_response"].measurements
    assert {m.verdict for m in gains} == {"reported"}
    assert any("depends on the loop" in m.note for m in gains)
    lagless = run("staleness_dose_response", arms=LoopArms.of_foreign(OnPolicy(), 0, slow=False))
    assert "no off_policy" in lagless["check_staleness_dose_response"]


# -- the public fixtures -----------------------------------------------------------------------------

OVERRIDE = """
import numpy as np
import pytest
from rlcheck.faults import FAULTS

@pytest.fixture(scope="session")
def rlcheck_training(rlcheck_training):
    return FAULTS[{name!r}].plant(rlcheck_training, np.random.default_rng(0))
"""


def test_a_loop_of_a_conftest_gets_the_checks_of_loops(inner):
    result = inner("-k", "check_lag0", conftest=OVERRIDE.format(name="optimiser_rebuilt"))
    failed = {line.split("::")[-1].split()[0] for line in result.outlines if line.startswith("FAILED ")}
    assert failed == {"check_lag0"}
    result.stdout.fnmatch_lines(["*first differ at step *: parameters; *optimiser loses its state*", "*  - other_opt*"])


def test_slow_asks_for_the_real_agent(inner, monkeypatch):
    def show(seed):
        raise RlcheckError("the real one")

    monkeypatch.setattr("rlcheck.tinyagent.dose_response.rev_arms", show)
    result = inner("--rlcheck-slow", "-k", "check_staleness_dose_response")
    result.stdout.fnmatch_lines(["*the real one*"])


@pytest.mark.slow
def test_rev_arms_are_loops_of_a_base_each(monkeypatch):
    made = []
    monkeypatch.setattr(TinyAgentLoop, "of_size", lambda *arguments: made.append(arguments))
    from rlcheck.tinyagent import dose_response

    dose_response.rev_arms(0, seeds=2)
    assert made == [(REV, 0), (REV, 1)]
