"""The checks of pipeline logs: healthy ones are green, planted faults are caught and named.

``RLCHECK_SEEDS=100`` sweeps more seeds.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import SEEDS
from log_checks import TOPICS, failures, recorded, run

from rlcheck.episodes import concatenate
from rlcheck.errors import RlcheckError
from rlcheck.faults import FAULTS
from rlcheck.faults.episodes import DESIGN
from rlcheck.simulation.config import Failures, PipelineConfig, Timeout, one_step_ahead
from rlcheck.simulation.durations import Exponential, LogNormal
from rlcheck.simulation.observed import ObservedLog, plain
from rlcheck.simulation.pipeline import simulate
from rlcheck.thresholds import QUANTITIES

PLANTED = {name: fault for name, fault in FAULTS.items() if fault.fixture == "rlcheck_episodes"}
ROWS = {
    *("capacity_after_resume", "stale_consumed", "length_starved", "version_tags", "batch_reused"),
    *("timeout_as_done", "failure_length_bias", "overlong_policy"),
}
BASE = PipelineConfig()
HEALTHY = {
    "synchronous": BASE,
    "one step ahead": one_step_ahead(BASE),
    "eta 1": BASE.but(eta=1),
    "with room for every fault": DESIGN,
    "over-sampled": BASE.but(oversample=1.5, eta=1),
    "in groups": BASE.but(group_size=8, eta=2),
    "timeouts kept": BASE.but(eta=1, timeout=Timeout(percentile=90)),
    "timeouts dropped": BASE.but(eta=1, timeout=Timeout(percentile=90, policy="drop")),
    "retries from checkpoints": BASE.but(eta=1, failures=Failures(1 / 500, "retry", 30.0)),
    "more slots than a batch": BASE.but(slots=100, batch_size=48, eta=2),
    "resumed": BASE.but(first_version=10, eta=2),
    "small": BASE.but(slots=4, batch_size=8, law=LogNormal(30.0, 1.0)),
    "exponential": BASE.but(law=Exponential(50.0), eta=4),
}


def simulated(design, seed):
    made = simulate(design, seed=seed)
    return ObservedLog(made.episodes, made.steps, design, simulated=True)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_pipeline_never_fails(name):
    for seed in SEEDS:
        assert failures(simulated(HEALTHY[name], seed)) == {}


def test_the_laws_of_a_simulated_design_never_fail():
    for seed in SEEDS:
        assert failures(simulated(BASE, seed), seed=seed, simulating=True) == {}


@pytest.mark.parametrize("name", HEALTHY)
def test_the_log_of_a_healthy_pipeline_of_unknown_design_never_fails(name):
    for seed in SEEDS:
        made = simulate(HEALTHY[name], seed=seed)
        assert failures(recorded(made.episodes, made.steps)) == {}
        assert failures(recorded(made.episodes)) == {}
        assert failures(recorded(made.episodes, made.steps, HEALTHY[name])) == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_caught_and_named(name):
    fault = PLANTED[name]
    for seed in SEEDS:
        made = simulate(DESIGN, seed=seed)
        log = fault.plant((made.episodes, made.steps), np.random.default_rng(seed))
        assert log[0].problems() == log[1].problems() == []
        found = failures(recorded(*log, DESIGN), *fault.topics)
        assert found, (seed, fault.summary)
        assert f"  - {fault.cause}: " in "\n".join(found.values())


def test_every_kind_of_fault_is_planted_in_two_ways():
    causes = [fault.cause for fault in PLANTED.values()]
    assert set(causes) == ROWS
    assert min(causes.count(cause) for cause in ROWS) >= 2


def values(log, *topics, **how):
    return {m.label: m for found in run(log, *topics, **how).values() for m in found.measurements}


def twice_trained():
    """Two passes over every batch, the second a step later."""
    made = simulate(BASE)
    early = made.episodes.select(made.episodes.trained_step < BASE.steps - 1)
    again = replace(early, trained_step=early.trained_step + 1, trained_version=early.trained_version + 1)
    return concatenate([made.episodes, again]), made.steps


def test_two_passes_over_a_batch_are_green_where_declared():
    assert set(failures(recorded(*twice_trained(), batch_reuse=2))) == set()
    assert "batch_reused" in failures(recorded(*twice_trained()))["check_nothing_is_trained_twice"]


def test_over_sampling_is_green_where_declared():
    made = simulate(BASE.but(oversample=1.5))
    assert failures(recorded(made.episodes, made.steps, BASE, oversample=1.5)) == {}
    assert "check_capacity" in failures(recorded(made.episodes, made.steps, BASE))


def test_tokens_of_several_versions_are_shown():
    made = simulate(BASE.but(eta=2))
    log = recorded(made.episodes, made.steps, kv_across_sync=True)
    shown = values(log, "pipeline")["pipeline.mixed_share"]
    assert shown.verdict == "reported"
    assert shown.value > 0.5


def test_conventions_that_nobody_declared_are_shown():
    """Dropped timeouts shorten what is trained by a fifth; that is a policy, until another one is declared."""
    made = simulate(BASE.but(timeout=Timeout(percentile=90, policy="drop")))
    shown = values(recorded(made.episodes, made.steps))
    assert shown["failure_length_bias.all_trained_over_started"].value < 0.85
    assert shown["failure_length_bias.overlong_share"].value == pytest.approx(0.1, abs=0.03)
    assert "failure_length_bias.against_truncation_policy" not in shown
    assert failures(recorded(made.episodes, made.steps, truncation_policy="drop")) == {}
    assert set(failures(recorded(made.episodes, made.steps, truncation_policy="mask"))) == {"check_ends_are_labelled"}
    with pytest.raises(RlcheckError, match="truncation_policy is 'maks'; use keep, mask or drop"):
        run(recorded(made.episodes, truncation_policy="maks"))


def test_staleness_is_judged_against_a_declared_bound_only():
    made = simulate(BASE.but(eta=2))
    assert failures(recorded(made.episodes, made.steps)) == {}
    assert set(failures(recorded(made.episodes, made.steps, max_staleness=2))) == {"check_staleness_bound"}


def test_a_declared_timeout_is_held_to():
    """Ten episodes, of which four time out and two graders crash."""
    made = simulate(BASE.but(eta=1))
    limit = float(np.quantile(made.episodes.seconds[made.episodes.ended], 0.9))
    assert set(failures(recorded(made.episodes, timeout_seconds=limit))) == {"check_ends_are_labelled"}
    assert failures(recorded(made.episodes, timeout_seconds=1e6)) == {}


def test_clocks_of_a_recorded_log_may_differ():
    made = simulate(BASE.but(eta=2))
    early = np.maximum(made.episodes.started_at - 0.5, 0.0)
    log = replace(made.episodes, started_at=early)
    assert failures(recorded(log, made.steps), "pipeline") == {}
    assert set(failures(recorded(log, made.steps, clock_slack=0.1), "pipeline")) == {"check_version_tags"}


def test_failures_shorten_what_gets_done_only_where_they_are_dropped():
    for policy, failing in (("drop", {"check_failures_cost_no_length"}), ("retry", set())):
        made = simulate(BASE.but(steps=40, failures=Failures(1 / 500, policy)))
        assert set(failures(recorded(made.episodes, made.steps))) == failing
        reason = "retried" if policy == "retry" else "infra"
        assert values(recorded(made.episodes))[f"failure_length_bias.wasted_share[{reason}]"].value > 0.05


def test_simulated_figures_are_those_of_the_reference():
    shown = {label: m.value for label, m in values(simulated(BASE, 0), simulating=True).items()}
    assert shown["straggler_scaling.law_ratio[B=64]"] == pytest.approx(4.33, abs=0.01)
    assert shown["pipeline.episodes_per_hour[eta=0]"] == pytest.approx(477, abs=45)
    assert shown["pipeline.mean_staleness[eta=2]"] == pytest.approx(1.495, abs=0.06)
    assert shown["pipeline.sync_cost[eta=2]"] == pytest.approx(-0.372, abs=0.018)
    assert shown["failure_length_bias.failed_share"] == pytest.approx(0.0455, abs=0.018)


def test_every_number_measured_is_in_the_table_and_every_row_of_it_is_measured():
    shown = values(simulated(DESIGN, 0), simulating=True) | values(simulated(BASE, 0), simulating=True)
    rows = {name for name in QUANTITIES if name.split(".")[0] in TOPICS}
    assert {m.name for m in shown.values()} | {"pipeline.log_errors"} == rows


def test_a_plain_design_is_what_the_laws_speak_of():
    assert plain(DESIGN.but(group_size=8, oversample=2.0)) == PipelineConfig(eta=2)
