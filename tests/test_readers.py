"""Recorded rollouts: written from any process, read back, and checked."""

import json
import math

import numpy as np
import pytest
import torch
from fakes import log_policy

import rlcheck
from rlcheck import RlcheckError, SamplingParams
from rlcheck.readers import read_rollouts

ROW = {"prompt_ids": [[3, 4]], "response_ids": [[5, 6, 7]], "engine_logprobs": [[-1.0, -2.0, -3.0]]}


def test_what_is_recorded_reads_back(tmp_path):
    params = SamplingParams(temperature=0.7, seed=3, logit_bias={4: 1.5}, eos_token_ids=(2,))
    rlcheck.record(
        tmp_path / "run" / "rank0.jsonl",
        params=params,
        **ROW,
        old_logprobs=torch.tensor([[-1.5, math.nan, -3.0]], dtype=torch.bfloat16),
        mask=[[1, 1, 0]],
        reward=np.array([1.0]),
        uid=["a"],
        latency=[0.25],
    )
    rlcheck.record(tmp_path / "run" / "rank1.jsonl", params=params.replace(seed=4), **ROW, uid=["b"])
    rollouts = read_rollouts(str(tmp_path / "run" / "*.jsonl"))
    assert rollouts.params == params
    assert rollouts.responses() == [[5, 6, 7], [5, 6, 7]]
    np.testing.assert_array_equal(rollouts.engine_logprobs, [-1, -2, np.nan, -1, -2, -3])
    assert rollouts.uid.tolist() == ["a", "b"]
    np.testing.assert_array_equal(rollouts.old_logprobs, [-1.5, np.nan, np.nan, *[np.nan] * 3])
    alone = read_rollouts(str(tmp_path / "run" / "rank0.jsonl"))
    np.testing.assert_array_equal(alone.old_logprobs, [-1.5, np.nan, np.nan])
    assert alone.extra["latency"].tolist() == [0.25]
    assert alone.reward.tolist() == [1.0]


def test_a_wrong_row_writes_nothing(tmp_path):
    path = tmp_path / "rank0.jsonl"
    with pytest.raises(RlcheckError, match="row 0: engine_logprobs has 2 entries for 3"):
        rlcheck.record(path, **{**ROW, "engine_logprobs": [[-1.0, -2.0]]})
    with pytest.raises(RlcheckError, match="record: response_ids is missing"):
        rlcheck.record(path, prompt_ids=[[1]])
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt_ids": [1], "response', r"dump\.jsonl:2: not a JSON object"),
        ("[1, 2]", r"dump\.jsonl:2: a JSON object is expected, not list"),
        ('{"prompt_ids": [1]}', r"dump\.jsonl:2: response_ids is missing or not a list"),
        ('{"schema": 9, "prompt_ids": [1], "response_ids": [2]}', r"dump\.jsonl:2: schema 9"),
        (
            '{"prompt_ids": [1], "response_ids": [2, 3], "engine_logprobs": [-1]}',
            r"dump\.jsonl:2: engine_logprobs has 1 entries for 2 response tokens",
        ),
        (
            '{"prompt_ids": [1], "response_ids": [2], "params": {"temprature": 1}}',
            r"dump\.jsonl:2: params: .*did you mean temperature",
        ),
        (
            '{"prompt_ids": [1], "response_ids": [2], "params": {"temperature": 0.5}}',
            "rows were sampled with different parameters",
        ),
    ],
)
def test_malformed_lines_are_named_by_file_and_line(tmp_path, line, message):
    good = '{"prompt_ids": [1], "response_ids": [2]}\n'
    (tmp_path / "dump.jsonl").write_text(good + line + "\n")
    with pytest.raises(RlcheckError, match=message):
        read_rollouts(str(tmp_path / "*.jsonl"))


def test_a_pickle_is_refused_as_text(tmp_path):
    (tmp_path / "dump.jsonl").write_bytes(b"\x80\x04\x95\xff\xfe")
    with pytest.raises(RlcheckError, match="cannot be read as JSON lines"):
        read_rollouts(str(tmp_path / "dump.jsonl"))


def dump(path, *, offset=0.0, **columns):
    """Honest samples of the fake policy, trainer's log-probs beside them ``offset`` nats off."""
    generator, policy = np.random.default_rng(0), log_policy(1.0)
    ids = generator.choice(len(policy), size=(120, 32), p=np.exp(policy))
    entropy = float(-(np.exp(policy) * policy).sum())
    rlcheck.record(
        path,
        prompt_ids=[[3]] * 120,
        response_ids=ids,
        engine_logprobs=policy[ids],
        entropy=np.full(ids.shape, entropy),
        **columns,
        **({} if offset is None else {"old_logprobs": policy[ids] + offset}),
    )


def test_a_recorded_run_is_checked_without_engine_or_trainer(inner, pytester):
    dump(pytester.path / "run" / "rank0.jsonl")
    result = inner("--rlcheck-rollouts", "run/*.jsonl", "-rs")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] >= 6
    assert "failed" not in outcomes
    result.stdout.fnmatch_lines(["*recorded rollouts not declared unfiltered: reported only*"])
    broken = pytester.mkdir("broken")
    dump(broken / "rank0.jsonl", offset=-0.5)
    result = inner("--rlcheck-rollouts", "broken/*.jsonl")
    result.stdout.fnmatch_lines(["*check_engine_and_trainer_agree*FAILED"])


def test_identities_are_judged_where_declared_unfiltered(inner, pytester):
    dump(pytester.path / "rank0.jsonl")
    declares = """
import pytest
@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {"unfiltered": True, "dtype": "float32"}
"""
    result = inner("--rlcheck-rollouts", "rank0.jsonl", "-k", "surprisal or ratio", conftest=declares)
    assert result.parseoutcomes()["passed"] == 2


def test_a_record_without_trainer_logprobs_says_what_to_do(inner, pytester):
    dump(pytester.path / "rank0.jsonl", offset=None)
    result = inner("--rlcheck-rollouts", "rank0.jsonl", "-k", "trainer_agree")
    assert result.parseoutcomes()["skipped"] == 1
    result.stdout.fnmatch_lines(["*or give old_logprobs with the rollouts*"])


def test_a_malformed_record_is_one_line_in_the_run(inner, pytester):
    (pytester.path / "dump.jsonl").write_text(json.dumps({"prompt_ids": [1]}) + "\n")
    result = inner("--rlcheck-rollouts", "dump.jsonl", "-k", "logprob_contract")
    result.stdout.fnmatch_lines(["*rlcheck: dump.jsonl:1: response_ids is missing or not a list*"])
    assert "native.py" not in result.stdout.str()
