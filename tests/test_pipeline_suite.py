"""``pytest --rlcheck`` on episode logs: from files, from fixtures, sound and unsound."""

import numpy as np
import pytest
from pipeline_cases import columns, write

from rlcheck.simulation.config import PipelineConfig, Timeout
from rlcheck.simulation.pipeline import simulate

TOPICS = ("-k", "straggler_scaling or pipeline or failure_length_bias", "-rs")
DESIGN = PipelineConfig(slots=16, batch_size=16, eta=1, timeout=Timeout(percentile=95))
PIPELINE = """
import numpy as np
import pytest
from rlcheck.faults import FAULTS
from rlcheck.faults.episodes import DESIGN

@pytest.fixture(scope="session")
def rlcheck_pipeline():
    return {design}
"""
PLANT = """
@pytest.fixture(scope="session")
def rlcheck_episodes(rlcheck_episodes):
    return FAULTS[{name!r}].plant(rlcheck_episodes, np.random.default_rng(0))
"""


@pytest.fixture
def logs(pytester):
    """Write a simulated log in the given format; changes of columns spoil it."""

    def make(suffix="csv", **changes):
        run = simulate(DESIGN)
        write(pytester.path / f"log.steps.{suffix}", columns(run.steps))
        write(pytester.path / f"log.{suffix}", columns(run.episodes) | changes)
        return ("--rlcheck-episodes", f"log.{suffix}", *TOPICS)

    return make


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_recorded_log_is_checked_without_its_design(inner, logs, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    result = inner(*logs(suffix))
    result.assert_outcomes(passed=7, skipped=7, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*the log is recorded: override rlcheck_pipeline with its design*"])
    result.stdout.fnmatch_lines(["ok   wrong_tags[[]started[]] * 0 attempts *"])


def test_a_recorded_log_is_held_to_the_design_that_is_given(inner, logs):
    design = "__import__('rlcheck').PipelineConfig(slots=16, batch_size=16, eta={})"
    right = inner(*logs(), conftest=PIPELINE.format(design=design.format(1)))
    right.assert_outcomes(passed=12, skipped=2, deselected=right.parseoutcomes().get("deselected", 0))
    wrong = inner(*logs(), conftest=PIPELINE.format(design=design.format(0)))
    wrong.stdout.fnmatch_lines(["pipeline.started_beyond_bound = 16 groups (n = *), must be <= 0*"])
    wrong.stdout.fnmatch_lines(["  - capacity_after_resume: *"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("silent_eviction", "  - stale_consumed: episodes older than the bound are consumed, or finished ones vanish*"),
        ("failures_dropped", "  - failure_length_bias: failed episodes are dropped*"),
        ("timeouts_read_as_done", "  - timeout_as_done: *"),
    ],
)
def test_a_fault_planted_in_a_fixture_is_named(inner, name, line):
    result = inner(*TOPICS, conftest=PIPELINE.format(design="DESIGN") + PLANT.format(name=name))
    result.stdout.fnmatch_lines([line])
    assert result.parseoutcomes()["failed"] == 1


def test_bad_content_fails_one_check_in_a_clear_line(inner, logs):
    run = simulate(DESIGN)
    early = run.episodes.finished_at.copy()
    early[3] = -5.0
    result = inner(*logs(finished_at=early))
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["skipped"], outcomes.get("errors", 0)) == (1, 13, 0)
    result.stdout.fnmatch_lines(["*log.csv: episodes: finished_at: -5.0 is a negative time *first in row 3)*"])
    result.stdout.fnmatch_lines(["*the log holds errors: see pipeline::check_log_is_sound*"])


def test_what_cannot_be_read_is_one_clear_line(inner, logs, pytester):
    arguments = logs()
    lines = (pytester.path / "log.csv").read_text().splitlines()
    lines[6] = lines[6].replace(",", ",soon", 1)
    (pytester.path / "log.csv").write_text("\n".join(lines))
    result = inner(*arguments)
    result.stdout.fnmatch_lines(["*rlcheck: log.csv: row 5: *'soon*' is not a number*"])
    assert "Traceback" not in result.stdout.str()
    missing = inner("--rlcheck-episodes", "nowhere.csv")
    missing.stderr.fnmatch_lines(["ERROR: rlcheck: --rlcheck-episodes: no file matches 'nowhere.csv'"])


@pytest.mark.parametrize(
    ("fixture", "value", "line"),
    [
        ("rlcheck_episodes", "[1]", "*rlcheck_episodes is a list, not (rlcheck.Episodes, rlcheck.Steps or None)*"),
        ("rlcheck_pipeline", "3", "*rlcheck_pipeline is a int, not a rlcheck.PipelineConfig*"),
    ],
)
def test_fixtures_of_the_wrong_type_are_named(inner, fixture, value, line):
    text = f"import pytest\n@pytest.fixture(scope='session')\ndef {fixture}(): return {value}\n"
    result = inner(*TOPICS, conftest=text)
    result.stdout.fnmatch_lines([line])
    assert "AttributeError" not in result.stdout.str()


def test_missing_columns_are_skips_that_name_them(inner, pytester):
    run = simulate(DESIGN)
    kept = ("episode_id", "started_at", "finished_at", "status")
    write(pytester.path / "log.csv", {name: columns(run.episodes)[name] for name in kept})
    result = inner("--rlcheck-episodes", "log.csv", *TOPICS)
    assert "failed" not in result.parseoutcomes()
    for name in ("version_started", "trained_step"):
        result.stdout.fnmatch_lines([f"*the log holds no {name}: record *"])


def test_an_empty_log_is_named(inner, pytester):
    (pytester.path / "log.csv").write_text("episode_id,started_at,finished_at,status\n")
    result = inner("--rlcheck-episodes", "log.csv", *TOPICS)
    result.stdout.fnmatch_lines(["*the episode log holds no attempt*"])
    assert "passed" not in result.parseoutcomes()


def test_the_seed_draws_the_simulated_log(inner):
    shown = {}
    for seed in ("0", "1"):
        result = inner("--rlcheck-seed", seed, "-k", "slowest")
        shown[seed] = next(line for line in result.outlines if "mean_seconds" in line)
    assert shown["0"] != shown["1"]
    assert np.isfinite(float(shown["0"].split()[2]))
