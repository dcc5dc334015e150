"""Long contexts: a fault that only they show fails, memory and rows stay bounded, the report names the longest."""

import numpy as np
import pytest
from fakes import FakeEngine

from rlcheck.blocks import LONG_ROWS, sample_long
from rlcheck.settings import resolve

CONFTEST = """
import numpy as np
import pytest
from fakes import FakeEngine, FakeTrainer

class Drifting(FakeTrainer):
    def logprobs(self, rollouts, **how):
        rows = super().logprobs(rollouts)
        far = np.maximum(rollouts.prompt_lengths - 100, 0) * {by}
        return [row - np.float32(off) for row, off in zip(rows, far)]

@pytest.fixture(scope="session")
def rlcheck_engine():
    return FakeEngine()

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Drifting()
"""


def test_rows_and_lengths_are_bounded_and_ragged():
    for length, rows in ((64, LONG_ROWS), (4096, LONG_ROWS), (8192, 2), (2**15, 1)):
        rollouts = sample_long(FakeEngine(), [[1, 2, 3], [4, 5]], length, 0)
        assert len(rollouts) == rows
        assert rollouts.contexts.max() == length
        assert len(np.unique(rollouts.prompt_lengths)) == rows


@pytest.mark.parametrize("text", ["1", "128,", "a"])
def test_lengths_that_are_none_are_refused(text):
    with pytest.raises(Exception, match="--rlcheck-lengths"):
        resolve({"lengths": text}, lambda key: None)


def test_a_fault_of_long_contexts_fails_there_only(inner):
    conftest = CONFTEST.format(by=0.001)
    short = inner("-k", "long_contexts or trainer_agree", "--rlcheck-lengths=64", conftest=conftest)
    short.assert_outcomes(passed=3, deselected=short.parseoutcomes()["deselected"])
    long = inner("-k", "long_contexts or trainer_agree", "--rlcheck-lengths=64,1024", conftest=conftest)
    assert long.parseoutcomes()["failed"] == 1
    long.stdout.fnmatch_lines(["*mismatch_mean_abs[[]L=1024[]] = *", "*longest context tested: 1024 tokens"])
