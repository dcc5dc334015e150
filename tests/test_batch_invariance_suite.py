"""The checks of batch invariance, run by pytest: what a stack lacks, what it declares, what it fixes."""

CONFTEST = """
import pytest
from fakes import FakeEngine, FakeTrainer
from test_batch_invariance import Wobbly, WobblyEngine

@pytest.fixture(scope="session")
def rlcheck_engine():
    return {engine}

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return {trainer}

@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {declared}
"""


def test_what_a_stack_lacks_is_named(inner):
    conftest = CONFTEST.format(engine="FakeEngine()", trainer="FakeTrainer()", declared={})
    result = inner("-k", "batch_invariance", "-rs", conftest=conftest)
    assert result.parseoutcomes() == {"passed": 3, "skipped": 6, "deselected": result.parseoutcomes()["deselected"]}
    for lacking in (
        "logprobs takes no layout=",
        "no training_logprobs(rollouts)",
        "no score(rollouts)",
        "no reset_prefix_cache()",
    ):
        result.stdout.fnmatch_lines([f"*{lacking}*"])


def test_declared_bitwise_shows_the_first_difference_with_its_bits(inner):
    wobbly = "Wobbly(lambda *, batch_size, **_: batch_size == 30, 'bit')"
    conftest = CONFTEST.format(engine="WobblyEngine('', 0)", trainer=wobbly, declared={"bitwise": True})
    result = inner("-k", "batch_invariance or trainer_agree", conftest=conftest)
    result.stdout.fnmatch_lines(
        [
            "B=N: first difference: row 0 (* + 32 tokens), position 2: -* (0x*) against -* (0x*)",
            "batch_invariance.micro_batch_unequal[[]B=N[]] = 16 tokens (n = 512), must be == 0",
            "    threshold from: your declaration bitwise",
            "  - batch_dependent: *",
        ]
    )
    assert result.parseoutcomes()["failed"] == 2  # its training_logprobs are one bit off too


def test_bitwise_holds_between_engine_and_trainer_too(inner):
    conftest = CONFTEST.format(engine="FakeEngine()", trainer="FakeTrainer(offset=-1e-6)", declared={"bitwise": True})
    result = inner("-k", "trainer_agree", conftest=conftest)
    result.stdout.fnmatch_lines(["*first difference: row 0 *", "mismatch.unequal = * tokens (n = 960), must be == 0"])


def test_a_trainer_whose_batches_have_a_multiple_is_asked_for_nothing_else(inner):
    sizes = "Wobbly(lambda *, batch_size, **_: batch_size % 4 and 1 / 0, 0)"
    trainer = f"(lambda t: setattr(t, 'batch_multiple', 4) or t)({sizes})"
    conftest = CONFTEST.format(engine="FakeEngine()", trainer=trainer, declared={})
    result = inner("-k", "micro_batch or neighbours or packed", conftest=conftest)
    assert result.parseoutcomes()["passed"] == 3
