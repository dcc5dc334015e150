"""Which checks run, against whose fixtures, and what is left alone."""

import pytest

ENGINE = """
import pytest
from fakes import FakeEngine, FakeTrainer

@pytest.fixture(scope="session")
def rlcheck_engine():
    return FakeEngine({name!r})
"""
STACK = (
    ENGINE
    + """
@pytest.fixture(scope="session")
def rlcheck_trainer():
    return FakeTrainer({name!r}, offset={offset})
"""
)
RAISES = "raise RuntimeError('a user module was imported')\n"


def stack(name, offset=0.0):
    return STACK.format(name=name, offset=offset)


def ids(result):
    return [line for line in result.outlines if "::check_" in line and line[0] not in " -"]


def test_every_conftest_is_a_suite_of_its_own_engine(inner):
    result = inner("-v", a__conftest=stack("alpha"), b__conftest=stack("beta"), c__conftest=stack("gamma", offset=0.5))
    result.stdout.fnmatch_lines(["rlcheck: suite a/conftest.py: * checks, overrides rlcheck_engine, rlcheck_trainer"])
    result.stdout.fnmatch_lines(["suite a/conftest.py", "*engine *FakeEngine alpha float32*"])
    result.stdout.fnmatch_lines(["suite b/conftest.py", "*engine *FakeEngine beta float32*"])
    result.stdout.fnmatch_lines(["suite c/conftest.py", "*engine *FakeEngine gamma float32*"])
    result.stdout.fnmatch_lines(["a/conftest.py::mismatch::check_engine_and_trainer_agree PASSED*"])
    result.stdout.fnmatch_lines(["c/conftest.py::mismatch::check_engine_and_trainer_agree FAILED*"])
    assert result.parseoutcomes()["failed"] >= 1


def test_a_default_is_built_anew_for_each_suite(inner):
    """rlcheck_rollouts is a default that depends on an overridden engine: it must not leak."""
    own = """
@pytest.fixture(autouse=True)
def the_rollouts_are_of_my_engine(request):
    rollouts = request.getfixturevalue("rlcheck_rollouts")
    engine = request.getfixturevalue("rlcheck_engine")
    assert engine.calls and rollouts is request.getfixturevalue("rlcheck_sample_blocks")(0)
    seen = request.config.__dict__.setdefault("seen_rollouts", {})
    assert seen.setdefault(engine.info["model"], id(rollouts)) == id(rollouts)
    assert len(set(seen.values())) == len(seen)
"""
    files = {f"{name}__conftest": stack(name) + own for name in ("a", "b", "c")}
    result = inner("-k", "contract and logprob_contract", **files)
    result.assert_outcomes(passed=3, deselected=result.parseoutcomes()["deselected"])


def test_only_the_engine_overridden_skips_what_needs_a_trainer(inner):
    result = inner("-rs", conftest=ENGINE.format(name="mine"))
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] >= 2
    assert "failed" not in outcomes
    assert "errors" not in outcomes
    result.stdout.fnmatch_lines(["*no trainer: override rlcheck_trainer, or name the engine's model with*"])


def test_a_foreign_trainer_never_meets_the_default_engine(inner):
    only_trainer = stack("mine").replace("def rlcheck_engine", "def my_engine")
    result = inner("-rs", conftest=only_trainer)
    assert set(result.parseoutcomes()) == {"skipped"}
    result.stdout.fnmatch_lines(["*no engine: override rlcheck_engine, or name a model with --rlcheck-model*"])


def test_parametrised_overrides_run_once_per_parameter(inner):
    conftest = """
import pytest
from fakes import FakeEngine, FakeTrainer

@pytest.fixture(scope="session", params=["one", "two"])
def rlcheck_engine(request):
    return FakeEngine(request.param)

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return FakeTrainer()
"""
    result = inner("-v", "-k", "check_engine_and_trainer_agree", conftest=conftest)
    result.stdout.fnmatch_lines(["*check_engine_and_trainer_agree[[]one[]] PASSED*"])
    result.stdout.fnmatch_lines(["*check_engine_and_trainer_agree[[]two[]] PASSED*"])


def test_a_suite_of_overrides_holds_only_checks_they_can_change(inner):
    trainer = stack("mine")
    result = inner("--collect-only", "-q", conftest=trainer)
    assert any("mismatch::" in line for line in result.outlines)
    nothing = "import pytest\n@pytest.fixture\ndef rlcheck_correction(): return None\n"
    result = inner("--collect-only", "-q", other__conftest=nothing, conftest="")
    assert not any("other/conftest.py::mismatch" in line for line in result.outlines)


def test_a_renamed_and_an_imported_fixture_count_as_overrides(inner, pytester):
    pytester.makepyfile(my_stack=stack("imported"))
    result = inner("-k", "agree", conftest="from my_stack import rlcheck_engine, rlcheck_trainer\n")
    result.stdout.fnmatch_lines(["*FakeEngine imported*"])
    renamed = stack("renamed").replace(
        '@pytest.fixture(scope="session")\ndef rlcheck_engine',
        '@pytest.fixture(scope="session", name="rlcheck_engine")\ndef mine',
    )
    result = inner("-k", "agree", conftest=renamed)
    result.stdout.fnmatch_lines(["*FakeEngine renamed*"])


@pytest.mark.parametrize("rest", [stack("mine"), "import pytest\n"])
def test_a_misspelt_fixture_name_is_pointed_out(inner, rest):
    text = rest + "\n@pytest.fixture\ndef rlcheck_promts(): return [[3]]\n"
    result = inner("--collect-only", conftest=text)
    result.stdout.fnmatch_lines(
        ["rlcheck: *defines rlcheck_promts, which no check asks for: did you mean rlcheck_prompts*"]
    )


def test_an_override_of_too_narrow_a_scope_is_told_what_to_write(inner):
    narrow = stack("mine").replace('@pytest.fixture(scope="session")', "@pytest.fixture")
    result = inner("-k", "trainer_agree", conftest=narrow)
    result.stdout.fnmatch_lines(['rlcheck: rlcheck_engine has function scope: write @pytest.fixture(scope="session")*'])
    assert "ScopeMismatch" not in result.stdout.str()


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_user_modules_are_not_even_imported(inner, mode):
    files = {"conftest": stack("mine"), "test_user": RAISES, "tests__test_more": RAISES, "helpers": RAISES}
    for target in ([], ["tests", "test_user.py", "--doctest-modules"]):
        result = inner(f"--import-mode={mode}", "-k", "agree", *target, process=True, **files)
        assert "a user module was imported" not in result.stdout.str() + result.stderr.str()
        assert not result.parseoutcomes().get("errors")


def test_a_root_conftest_above_testpaths_is_a_suite(inner):
    result = inner(ini="testpaths = tests", conftest=stack("root"), tests__test_user=RAISES)
    result.stdout.fnmatch_lines(["*FakeEngine root*"])
    assert result.parseoutcomes()["passed"] >= 9


def test_paths_and_ids_choose_suites(inner):
    files = {"a__conftest": stack("alpha"), "b__conftest": stack("beta")}
    by_path = inner("a", **files)
    assert "FakeEngine beta" not in by_path.stdout.str()
    by_file = inner("b/conftest.py")
    assert "FakeEngine alpha" not in by_file.stdout.str()
    by_id = inner("a/conftest.py::mismatch::check_engine_and_trainer_agree")
    by_id.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        (["-k", "mismatch and shifted"], {"passed": 1}),
        (["-m", "rlcheck", "-k", "shifted"], {"passed": 1}),
        (["-m", "not rlcheck"], {}),
        (["-k", "shifted", "--deselect", "conftest.py::mismatch::check_rows_are_not_shifted"], {}),
    ],
)
def test_selection_works_as_ever(inner, arguments, outcome):
    outcomes = inner(*arguments, conftest=stack("mine")).parseoutcomes()
    assert {key: value for key, value in outcomes.items() if key != "deselected"} == outcome


def test_last_failed_and_exitfirst(inner):
    broken = stack("mine", offset=0.5)
    first = inner(conftest=broken).parseoutcomes()
    again = inner("--lf", conftest=broken).parseoutcomes()
    assert again["failed"] == first["failed"]
    assert "passed" not in again
    assert inner("-x", conftest=broken).parseoutcomes()["failed"] == 1


def test_collect_only_builds_nothing(inner):
    result = inner("--collect-only", conftest=stack("mine").replace("FakeEngine(", "1 / 0 * ("))
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*<CheckModule mismatch>*", "*<Function check_engine_and_trainer_agree*"])


def test_warnings_as_errors_do_not_fail_our_checks(inner):
    noisy = stack("mine").replace(
        "    return FakeEngine", "    import warnings; warnings.warn('old', DeprecationWarning)\n    return FakeEngine"
    )
    result = inner(ini="filterwarnings = error", conftest=noisy)
    assert result.parseoutcomes()["passed"] >= 11
    assert not {"failed", "errors"} & set(result.parseoutcomes())


def test_an_overriding_stack_stays_in_one_worker(inner, pytester):
    own = """
import os
@pytest.fixture(autouse=True)
def note_worker(request):
    with open(request.config.rootpath / "workers.txt", "a") as file:
        file.write(os.environ.get("PYTEST_XDIST_WORKER", "main") + "\\n")
"""
    result = inner("-n", "2", process=True, conftest=stack("mine") + own)
    assert "failed" not in result.parseoutcomes()
    assert result.parseoutcomes()["passed"] >= 9
    result.stdout.fnmatch_lines(["*FakeEngine mine*", "ok   mean_abs*"])
    workers = (pytester.path / "workers.txt").read_text().split()
    assert len(workers) >= 11
    assert len(set(workers)) == 1


def test_one_process_owns_the_stack(inner, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    result = inner(conftest=stack("mine"))
    result.stderr.fnmatch_lines(["ERROR: rlcheck: WORLD_SIZE > 1: one process owns the stack*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_fixtures_serve_the_users_own_tests(pytester, inner):
    pytester.makeconftest(stack("mine", offset=0.3))
    pytester.makepyfile(
        """
        def test_engine_is_mine(rlcheck_engine, rlcheck_rollouts):
            assert rlcheck_engine.info["model"] == "mine" and len(rlcheck_rollouts) == 30

        def test_number(rlcheck_measure):
            rlcheck_measure("mismatch.shifted_rows", 3)
            rlcheck_measure("own.number", 3)
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*mismatch.shifted_rows = 3 rows, must be == 0*"])


def test_expected_failures_are_strict_and_must_match(inner):
    ini = """rlcheck_expected_failures =
        *::check_engine_and_trainer_agree: known offset
        *::check_rows_are_not_shifted: passes, so strict fails it
        *::check_that_never_was: gone"""
    result = inner("-k", "agree or shifted", ini=ini, conftest=stack("mine", offset=0.5))
    result.stdout.fnmatch_lines(["rlcheck: rlcheck_expected_failures: no check matches *never_was*"])
    assert result.parseoutcomes()["xfailed"] == 1
    result.stdout.fnmatch_lines(["*check_rows_are_not_shifted*FAILED*"])


def test_a_conftest_may_list_what_its_suite_expects(inner):
    expected = 'rlcheck_expected_failures = ["*::check_engine_and_trainer_agree: known offset"]'
    files = {"a__conftest": stack("a", offset=0.5) + expected, "b__conftest": stack("b", offset=0.5)}
    result = inner("-k", "trainer_agree", **files)
    result.assert_outcomes(xfailed=1, failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.no_fnmatch_line("*which no check asks for*")


def test_third_party_checks_join(inner, third_party):
    third_party("house", "def check_house(rlcheck_engine, rlcheck_measure): rlcheck_measure('house.x', 1)")
    result = inner("-v", "-k", "house", conftest=stack("mine"))
    result.stdout.fnmatch_lines(["*::house::check_house *"])
