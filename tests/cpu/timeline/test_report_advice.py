"""What a report says below its tables: why ranges are bound, what helps, what predictions leave out."""

from __future__ import annotations

import re
from pathlib import Path

import captures
import pytest
from timelines import printed, small_timeline

from launchkit.profiling.report.document import report_document
from launchkit.profiling.report.html import html_report
from launchkit.profiling.timeline import analyse, read_timeline
from launchkit.profiling.timeline.analysis.verdicts import HELPS, VERDICTS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def small():
    return report_document(analyse(small_timeline()))


@pytest.fixture(scope="module")
def sample():
    return report_document(analyse(read_timeline(captures.nsys_sample())))


def test_report_says_why_a_range_is_bound_and_what_helps(sample) -> None:
    text = " ".join(printed(sample, width=80).split())
    rows = {row["name"]: row for row in sample["ranges"]}
    for name in ("backpressure", "sync", "ssd_scan", "worker"):
        row = rows[name]
        assert f"- {name} is {row['verdict']}: {row['reason']}" in text
        assert f"- {row['verdict']}: {HELPS[row['verdict']]}" in text
    assert "- no GPU work" not in text
    page = html_report([sample])
    assert f"<li>sync-bound: {HELPS['sync-bound']}</li>" in page


def test_every_verdict_and_what_helps_is_in_the_document_on_reading_timelines() -> None:
    document = (ROOT / "docs" / "reading-timelines.md").read_text(encoding="utf-8")
    section = document.partition("\n## Verdicts\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([\w -]+) \|.*\| (.*?) ?\|$", section, re.MULTILINE)[1:])
    assert set(rows) == set(VERDICTS)
    for verdict, helps in rows.items():
        assert helps.replace("`", "") == HELPS.get(verdict, ""), verdict


def test_what_predictions_leave_out_is_told_once_with_what_it_is_about(small) -> None:
    def predicted(name, change, *notes):
        times = {
            "measured_ns": 9,
            "replayed_ns": 9,
            "predicted_ns": 5,
            "saved_ns": 4,
            "hidden_ns": 0,
        }
        return {"range": name, "change": change, "notes": list(notes), **times}

    rows = [
        predicted("a", "Fused", "all", "of fused"),
        predicted("b", "Fused", "all", "of fused"),
        predicted("a", "OpPlan", "all", "one"),
        predicted("b", "OpPlan", "all"),
    ]
    text = printed({**small, "what_if": rows}, width=80)
    told = text.partition("What these leave out\n")[2].partition("\n\n")[0].split("\n")
    assert [line.strip() for line in told] == ["- all", "- fused: of fused", "- a op plan: one"]
