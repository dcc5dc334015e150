"""The weight sync through the public fixtures, and what it leaves behind."""

import pytest
from sync_cases import ALL, stack, trial_of
from test_faults import failed_checks

from rlcheck import RlcheckError
from rlcheck.faults import FAULTS
from rlcheck.weight_sync import InProcess

# -- everything is put back --------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [None, 1, 2, 3])
def test_weights_are_put_back_whatever_fails(failing):
    engine, trainer = stack()
    clean = engine.fingerprint()
    pushes = []

    def push():
        pushes.append(engine.version)
        InProcess(trainer, engine)()
        if len(pushes) == failing:
            raise OSError("connection lost")

    if failing:
        with pytest.raises(OSError, match="connection lost"):
            trial_of(engine, trainer, push)
    else:
        trial_of(engine, trainer, push)
    assert clean == engine.fingerprint() == trainer.fingerprint()
    assert len(pushes) == {None: 3, 1: 2, 2: 3, 3: 3}[failing]


def test_each_move_is_taken_back_before_the_next():
    engine, trainer = stack()
    calls = []

    def noted(name):
        method = getattr(trainer, name)
        setattr(trainer, name, lambda *arguments: calls.append(name) or method(*arguments))

    noted("perturb")
    noted("restore")
    trial_of(engine, trainer)
    assert calls == ["perturb", "restore"] * (len(calls) // 2)


def test_weights_are_put_back_when_sampling_fails():
    engine, trainer = stack()
    clean, sample, calls = engine.fingerprint(), engine.sample, []

    def failing(prompts, asked):
        calls.append(prompts)
        if len(calls) == 5:
            raise RlcheckError("out of memory")
        return sample(prompts, asked)

    engine.sample = failing
    with pytest.raises(RlcheckError, match="out of memory"):
        trial_of(engine, trainer)
    assert clean == engine.fingerprint() == trainer.fingerprint()


# -- through the public fixtures -----------------------------------------------------------------------------

PLANT = """
import numpy as np
import pytest
from rlcheck.faults import FAULTS

@pytest.fixture(scope="session")
def {fixture}({fixture}):
    return FAULTS[{name!r}].plant({fixture}, np.random.default_rng(0))
"""
CONFTEST = """
import pytest
from rlcheck import models
from rlcheck.engines import TransformersEngine
from rlcheck.trainers import TransformersTrainer

PAIR = models.load_pair("embedded-tied", ("float32", "float32"))

class Engine(TransformersEngine):
    {engine}

class Trainer(TransformersTrainer):
    {trainer}

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Engine(PAIR[0])

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer(PAIR[1])
"""


@pytest.mark.parametrize(
    "name", ["cache_kept", "wakes_up_old", "tensors_lost", "head_of_its_own", "adapter_not_sent", "scale_dropped"]
)
def test_faults_planted_through_fixtures_are_caught(inner, name):
    fault = FAULTS[name]
    text = PLANT.format(fixture=fault.fixture, name=name)
    stack = ("--rlcheck-model", fault.model, "--rlcheck-dtype", "float32", "--rlcheck-tokens", "192")
    result = inner(*stack, "-k", "weight_sync", conftest=text)
    assert failed_checks(result), fault.summary
    result.stdout.fnmatch_lines([f"*  - {fault.cause}: *"])
    if name == "tensors_lost":
        result.stdout.fnmatch_lines(["unmoved (first): *", "weight_sync.unmoved_tensors[[]first[]] = 3 tensors *"])


ALLOWED = "rlcheck_allow_perturb = true"


@pytest.mark.parametrize(
    ("engine", "trainer", "ini", "reason"),
    [
        ("pass", "pass", "", "the trainer is your own: give --rlcheck-allow-perturb"),
        ("load_weights = property()", "pass", ALLOWED, "load_weights(weights) of the engine"),
        ("pass", "weights = property()", ALLOWED, "weights() of the trainer"),
        ("pass", "restore = property()", ALLOWED, "no perturb(scale, seed) and restore()"),
    ],
)
def test_what_a_stack_of_ones_own_must_give(inner, engine, trainer, ini, reason):
    conftest = CONFTEST.format(engine=engine, trainer=trainer)
    result = inner("-k", "weight_sync", "-rsf", "--rlcheck-tokens", "192", ini=ini, conftest=conftest)
    assert result.parseoutcomes()["skipped"] == len(ALL)
    result.stdout.fnmatch_lines([f"*{reason}*"])


@pytest.mark.parametrize(("arguments", "ini"), [(["--rlcheck-allow-perturb"], ""), ([], ALLOWED)])
def test_a_trainer_of_ones_own_is_moved_when_that_is_allowed(inner, arguments, ini):
    conftest = CONFTEST.format(engine="pass", trainer="pass")
    result = inner("-k", "weight_sync", "--rlcheck-tokens", "192", *arguments, ini=ini, conftest=conftest)
    assert result.parseoutcomes()["passed"] == len(ALL)


def test_a_push_that_raises_is_told_and_undone(inner):
    text = (
        CONFTEST.format(engine="pass", trainer="pass")
        + """
@pytest.fixture(scope="session")
def rlcheck_weight_sync():
    def push():
        raise OSError("connection lost")
    before = PAIR[1].state_dict()["lm_head.weight"].sum().item()
    yield push
    assert PAIR[1].state_dict()["lm_head.weight"].sum().item() == before
"""
    )
    result = inner("-k", "engine_follows", "--rlcheck-tokens", "192", "--rlcheck-allow-perturb", conftest=text)
    result.assert_outcomes(errors=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*OSError: connection lost*"])


def test_without_members_a_check_names_what_it_lacks(inner):
    lacking = "acquire = fingerprint = reset_prefix_cache = property()\n    load_weights = lambda self, weights: "
    text = CONFTEST.format(engine=lacking + "self.model.load_state_dict(weights) and None", trainer="pass")
    result = inner("-k", "weight_sync", "-rsf", "--rlcheck-tokens", "192", ini=ALLOWED, conftest=text)
    assert failed_checks(result) == {"check_cached_prompts_follow", "check_version_moves"}
    for reason in ("no release() and acquire()", "the engine has no fingerprint()"):
        result.stdout.fnmatch_lines([f"*{reason}*"])
