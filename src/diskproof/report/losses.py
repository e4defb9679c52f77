"""Whether the runs that a workload lacks are missing where it was slow."""

from collections.abc import Mapping, Sequence

from diskproof.report.labels import change, count
from diskproof.report.outputs import SlowLossesJson
from diskproof.stats.intervals import CONFIDENCE, Sample
from diskproof.stats.slow_losses import SlowLosses, find_slow_losses
from diskproof.store import ResultRow, RunRow


def read_slow_losses(rows: Sequence[ResultRow], runs: Mapping[str, RunRow]) -> SlowLosses | None:
    """From the primary ``rows`` of one workload on one host; ``runs`` are the study's by id."""
    failed: dict[str, list[float]] = {row.cell.id: [] for row in rows}
    for run in runs.values():
        if run.failure is not None and run.host_id == rows[0].host_id and run.cell.id in failed:
            failed[run.cell.id].append(run.started)
    if not any(failed.values()) or any(each not in runs for row in rows for each in row.run_ids):
        return None
    return find_slow_losses(
        [Sample(row.values, row.blocks) for row in rows],
        [[runs[each].started for each in row.run_ids] for row in rows],
        [failed[row.cell.id] for row in rows],
        higher_is_better=rows[0].higher_is_better,
    )


def losses_json(losses: SlowLosses | None) -> SlowLossesJson | None:
    """What ``losses_words`` says, with its figures."""
    if losses is None:
        return None
    return {
        "failed": losses.failed,
        "ratio": losses.ratio,
        "p_value": losses.p_value,
        "text": losses_words(losses),
    }


def hidden_lines(hidden: Mapping[str, SlowLosses]) -> list[str]:
    """What the failed runs of workloads, by name, hide."""
    return [f"{name}: {losses_words(each)}" for name, each in hidden.items()]


def losses_words(losses: SlowLosses) -> str:
    """What failed runs hide, if it is proved."""
    many = count(losses.failed, "failed run")
    if losses.p_value > 1 - CONFIDENCE:
        return f"{many}, not told apart from chance where blocks were slow"
    return (
        f"runs are missing where blocks were slow: around {many} all was at "
        f"{change(losses.ratio)}; their cells may look better than they are"
    )
