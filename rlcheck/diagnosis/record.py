"""Facts of the record alone: ids that were not sampled, prompts that were not sent, draws that repeat."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck import tokens
from rlcheck.blocks import asked_prompts
from rlcheck.contract.sampler import shaping_defaults
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.gates import in_words
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import SHAPED
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.rollouts import Rollouts

FACT = 0.985
"""A fact beats a pattern."""


@detector(*PAIR, lasting=True)
def ids(case: Case) -> Iterator[Finding]:
    """Rows whose ids are not those sampled, or that are longer than what was asked for."""
    rollouts: Rollouts | None = case.fixture("rlcheck_rollouts")
    if rollouts is None:
        return
    n = len(rollouts)
    unlike = tokens.unlike_sampled(rollouts)
    if unlike is not None and len(unlike):
        yield Finding("retokenised", FACT, f"the ids of {len(unlike)} of {n} rows are not those in sampled_ids")
    beyond = tokens.over_the_limit(rollouts) if case.fixture("rlcheck_sampler") is not None else ()
    if len(beyond):
        evidence = f"{len(beyond)} of {n} rows train more tokens than max_tokens let the engine sample"
        yield Finding("tool_tokens_trained", FACT, evidence)


@detector(*PAIR, lasting=True)
def echo(case: Case) -> Iterator[Finding]:
    """Rows whose prompt is not the one that was sent."""
    rollouts, prompts = case.fixture("rlcheck_rollouts"), case.fixture("rlcheck_prompts")
    if rollouts is None or not prompts or case.fixture("rlcheck_sampler") is None:
        return
    found = tokens.compare_echo(rollouts, asked_prompts(prompts, len(rollouts)))
    for cause, rows, what in (
        ("wrong_pairing", found.another, "the prompt sent for another row"),
        ("double_bos", found.changed, "a prompt that was never sent"),
        ("tool_tokens_trained", found.trained, "the end of their prompt among the trained tokens"),
    ):
        if len(rows):
            yield Finding(
                cause, FACT, f"{len(rows)} of {len(rollouts)} rows come back with {what}, row {rows[0]} first"
            )


@detector(*PAIR, lasting=True)
def unsampled(case: Case) -> Iterator[Finding]:
    """Rows that hold tokens which no sampler would draw from the trainer's distribution."""
    probes = case.probes
    distribution = getattr(probes.trainer, "distribution", None) if probes else None
    if probes is None or distribution is None or case.asked or not tokens.one_policy(probes.pair):
        return
    rows = tokens.unsampled_rows(probes.pair, distribution)
    if len(rows):
        evidence = (
            f"{len(rows)} of {len(probes.rollouts)} rows train tokens that nobody sampled: too many unlikely ones"
        )
        yield Finding("tool_tokens_trained", 0.8, evidence)


@detector("contract.duplicates_beyond_chance", "contract.repeat_excess")
def duplicates(case: Case) -> Iterator[Finding]:
    """Draws that agree more often than their probabilities explain, and that nothing else makes unlike reported."""
    shaped = any(
        name.startswith(("contract.surprisal", "contract.tail", "contract.repeat_gap")) for name in case.failed
    )
    hidden = bool(shaping_defaults(case.fixture("rlcheck_engine")))
    shaped |= case.probes is not None and abs(case.probes.surprisal_z) > SHAPED
    again = any(
        m.value > 0 for m in case.failing if m.name.startswith(("contract.duplicates", "contract.repeat_excess"))
    )
    alone = again and not shaped and not hidden
    evidence = "; ".join(in_words(m) for m in case.failing[:2])
    single = "are not" if shaped else "are"
    yield Finding("duplicate_seed", 0.97 if alone else 0.3, f"{evidence}; single draws {single} as likely as reported")
