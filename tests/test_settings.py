"""Options: command line over ini over default, and one clear line for what is wrong."""

import pytest

from rlcheck.settings import OPTIONS, Settings

CONFTEST = """
import pytest
from fakes import FakeEngine, FakeTrainer

@pytest.fixture(scope="session")
def rlcheck_engine():
    return FakeEngine()

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return FakeTrainer(offset=0.3)
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--rlcheck-dtype", "bfloat61"],
            "--rlcheck-dtype: 'bfloat61' is not one of its values: did you mean bfloat*",
        ),
        (["--rlcheck-attention", "spda"], "--rlcheck-attention: 'spda' is not one of its values: did you mean sdpa*"),
        (["--rlcheck-device", "gpu"], "--rlcheck-device: 'gpu' is not a device*"),
        (["--rlcheck-tokens", "many"], "--rlcheck-tokens: 'many' is not a number"),
        (["--rlcheck-tokens", "3"], "--rlcheck-tokens: 3 is below 32"),
        (["--rlcheck-threshold", "mismatch.mean_bas <= 1"], "no check measures*did you mean mismatch.mean_abs*"),
        (["--rlcheck-threshold", "mean < 1"], "threshold 'mean < 1' does not read as NAME*"),
        (["--rlcheck-rollouts", "nothing/*.jsonl"], "--rlcheck-rollouts: no file matches 'nothing/*.jsonl'"),
        (["--rlcheck-json", "/proc/no/report.json"], "--rlcheck-json: cannot write /proc/no/report.json*"),
    ],
)
def test_a_wrong_value_is_one_usage_error_before_anything_runs(inner, arguments, message):
    result = inner(*arguments, conftest=CONFTEST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len([line for line in result.errlines if line.strip()]) == 1
    result.stderr.fnmatch_lines([f"ERROR: rlcheck: {message}".replace("[", "[[]")])


def test_a_wrong_ini_value_is_a_usage_error_too(inner):
    result = inner(ini="rlcheck_dtype = int3", conftest=CONFTEST)
    result.stderr.fnmatch_lines(["ERROR: rlcheck: --rlcheck-dtype: 'int3' is not one of its values*"])


def test_command_line_over_ini_over_default(inner):
    loose = (
        "rlcheck_thresholds =\n    mismatch.mean_abs <= 0.9\n    mismatch.k3 <= 9\n    mismatch.rows_over_half <= 99"
    )
    assert "failed" not in inner("-k", "trainer_agree", ini=loose, conftest=CONFTEST).parseoutcomes()
    tight = inner(
        "-k", "trainer_agree", "--rlcheck-threshold", "mismatch.mean_abs <= 0.01", ini=loose, conftest=CONFTEST
    )
    tight.assert_outcomes(failed=1, deselected=tight.parseoutcomes()["deselected"])
    tight.stdout.fnmatch_lines(["*threshold from: --rlcheck-threshold*"])
    tight.stdout.fnmatch_lines(["rlcheck: *threshold 'mismatch.mean_abs <= 0.01'*"])


def test_a_suite_has_thresholds_of_its_own(inner):
    own = """
@pytest.fixture(scope='session')
def rlcheck_thresholds():
    return ['mismatch.mean_abs <= 0.9', 'mismatch.k3 <= 9']
"""
    result = inner("-k", "trainer_agree", a__conftest=CONFTEST + own, b__conftest=CONFTEST)
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (1, 1)


def test_the_header_names_the_settings(inner):
    result = inner("--rlcheck-seed", "7", "--rlcheck-tokens", "320", "-k", "shifted", conftest=CONFTEST)
    result.stdout.fnmatch_lines(["rlcheck: *model embedded, dtype bfloat16, seed 7, tokens 320*"])


def test_every_option_is_a_field_and_an_ini_key():
    from dataclasses import fields

    assert {option.name for option in OPTIONS} == {field.name for field in fields(Settings)}


def test_undeclared_names_are_refused(inner):
    own = "\n@pytest.fixture(scope='session')\ndef rlcheck_declarations(): return {'unfilterd': True}\n"
    result = inner("-k", "trainer_agree", conftest=CONFTEST + own)
    result.stdout.fnmatch_lines(["*rlcheck_declarations: unknown name 'unfilterd': did you mean unfiltered*"])
