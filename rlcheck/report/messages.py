"""Sentences about measured numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from rlcheck.causes import CAUSES
from rlcheck.findings import LIKELY, Finding
from rlcheck.measure import Measurement, Recorder, number
from rlcheck.settings import Settings

MARKS = {"pass": "ok", "fail": "FAIL", "undecided": "?", "reported": "-"}


def table_line(m: Measurement) -> str:
    """One number in 80 columns: verdict, name, value with its half-width, unit, n, threshold."""
    value = f"{m.text} {m.unit}".strip()
    n = "" if m.n is None else f"n={m.n}"
    label = m.label.split(".", 1)[-1]
    named = f"{label:<24} {value}"  # a long label takes the room that its value leaves
    return f"{MARKS[m.verdict]:<4} {named:<46} {n:<7} {m.threshold}".rstrip()


def failure(recorder: Recorder, findings: Sequence[Finding] = (), strict: bool = False) -> str:
    """The message of a failing check: every number beyond its threshold, and what that looks like."""
    beyond = recorder.having("fail") + (recorder.having("undecided") if strict else [])
    lines = [*recorder.errors, *recorder.explanations]
    for m in beyond:
        lines += [sentence(m), f"    threshold from: {m.source}"]
    lines += diagnosis(findings)
    others = [m for m in recorder.measurements if m not in beyond]
    if others:
        lines += ["measured beside it:", *map(table_line, others)]
    return "\n".join(lines)


def diagnosis(findings: Sequence[Finding]) -> Iterator[str]:
    """What it looks like, with evidence and remedy; a line each for what is less likely."""
    likely = [finding for finding in findings if finding.confidence >= LIKELY]
    others = [finding for finding in findings if finding not in likely]
    for heading, named in (("this looks like:", likely), ("less likely:", others)):
        if named:
            yield heading
        for finding in named:
            yield f"  - {finding.cause}: {CAUSES[finding.cause].title} (confidence {finding.confidence:.2f})"
            if finding in likely:
                yield f"      evidence: {finding.evidence}"
                yield f"      look at: {finding.remedy}"


def sentence(m: Measurement) -> str:
    """One number and its rule in words."""
    size = "" if m.n is None else f" (n = {m.n})"
    verb = "must be" if m.verdict == "fail" else "is undecided: must be"
    power = ""
    if m.smallest_detectable is not None:
        power = f"; this n can see {number(m.smallest_detectable)} beyond it"
    return f"{m.label} = {m.text} {m.unit}".rstrip() + f"{size}, {verb} {m.threshold}{power}"


def nothing_decided(recorder: Recorder) -> str:
    """Why a check that did not fail has not passed either; empty where a number passed."""
    if recorder.having("pass"):
        return ""
    undecided = recorder.having("undecided")
    if undecided:
        needed = max((m.needed or 0 for m in undecided), default=0)
        amount = f"needs about n = {needed}" if needed else "needs more rows"
        names = ", ".join(m.label for m in undecided)
        return f"undecided, {amount} (now {undecided[0].n}): {names}"
    reasons = dict.fromkeys(m.note for m in recorder.measurements if m.note)
    return f"nothing judged: {'; '.join(reasons) or 'no number was measured'}"


def settings_line(settings: Settings) -> str:
    """Every setting that differs from its default, and always the model, dtype, seed and block size."""
    always = {"dtype", "seed", "tokens"}
    shown = [f"model {settings.model_name}"]
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in always or (value != field.default and field.name not in ("model", "threshold")):
            shown.append(f"{field.name} {value}")
    shown += [f"threshold {line!r}" for line, _ in settings.threshold]
    return ", ".join(shown)
