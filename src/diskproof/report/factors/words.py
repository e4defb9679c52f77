"""Sentences about factors: what a level gains, what an interaction hides."""

import math

from diskproof.report.ratios import is_untold
from diskproof.stats.design import Alias, Term
from diskproof.stats.factor_analysis import FactorAnalysis, TermShare
from diskproof.stats.intervals import CONFIDENCE
from diskproof.stats.level_effects import LevelEffect

ALPHA = 1 - CONFIDENCE
_FOLD_AT = 10.0
"""Ratios from here on are told without decimals."""


def term_name(term: Term) -> str:
    return " x ".join(term)


def fold(ratio: float) -> str:
    """``1.52x``, ``23x``."""
    if not math.isfinite(ratio) or ratio > 1e6:
        return "?"
    return f"{ratio:.0f}x" if ratio >= _FOLD_AT else f"{ratio:.2f}x"


def speeds(effect: LevelEffect, higher_is_better: bool) -> tuple[float, float | None, float | None]:
    """The effect as a ratio of speeds with its bounds; above 1 the level is faster."""
    if higher_is_better:
        return effect.ratio, effect.low, effect.high
    low = None if effect.high is None else _inverse(effect.high)
    high = None if effect.low is None else _inverse(effect.low)
    return _inverse(effect.ratio), low, high


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def effect_words(effect: LevelEffect, higher_is_better: bool) -> str:
    """``1.52x [1.47, 1.58] faster than none``; without a proof it says so."""
    if effect.method == "inseparable":
        return f"cannot be told from the other factors (against {effect.base})"
    ratio, low, high = speeds(effect, higher_is_better)
    if low is None or high is None or effect.p_corrected is None:
        word = "faster" if ratio >= 1 else "slower"
        return f"{fold(max(ratio, _inverse(ratio)))} {word} than {effect.base}, not proved"
    if effect.p_corrected > ALPHA:
        if is_untold(low, high):
            return f"not told apart from {effect.base}: too few runs to say"
        return f"not told apart from {effect.base}: {fold(ratio)} [{low:.2f}, {high:.2f}]"
    if ratio < 1:
        ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
        return f"{fold(ratio)} [{_bound(low)}, {_bound(high)}] slower than {effect.base}"
    return f"{fold(ratio)} [{_bound(low)}, {_bound(high)}] faster than {effect.base}"


def _bound(ratio: float) -> str:
    return fold(ratio).removesuffix("x")


def effect_basis(effect: LevelEffect, higher_is_better: bool) -> str:
    """What the effect was computed from, and how much it depends on the company it keeps."""
    if effect.method == "inseparable":
        return ""
    if effect.method == "adjusted":
        return "model without interactions"
    if effect.least is None or effect.most is None or effect.pairs == 1:
        return "one pair of cells"
    least, most = effect.least, effect.most
    if not higher_is_better:
        least, most = _inverse(most), _inverse(least)
    return f"{effect.pairs} pairs, {fold(least)} to {fold(most)}"


def alias_words(alias: Alias) -> str:
    """One effect that the measured cells do not show on its own."""
    name = term_name(alias.term)
    if not alias.partners:
        how = "" if alias.missing == alias.freedom else " in part"
        return f"{name}{how}: these combinations were not measured"
    others = ", ".join(term_name(partner) for partner in alias.partners[:4])
    rest = len(alias.partners) - 4
    more = f" and {rest} more" if rest > 0 else ""
    how = "one with" if alias.missing == alias.freedom else "partly one with"
    return f"{name}: {how} {others}{more}"


def share_text(share: float) -> str:
    """Percent; nothing below a tenth. What is estimated below nought is nothing."""
    return "0 %" if share < 5e-4 else f"{100 * share:.1f} %"


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return "<.001" if p_value < 1e-3 else f"{p_value:.3f}".lstrip("0") if p_value < 1 else "1"


def summary_words(analysis: FactorAnalysis, first_blocks: int | None = None) -> str:
    """One line: what was analysed and on what the intervals rest; ``first_blocks`` of a race."""
    rests = {
        "repeats": "intervals from the scatter of repeats",
        "interactions": "no cell has a repeat: higher interactions are taken for noise",
        "none": "no cell has a repeat: no intervals",
    }[analysis.noise]
    of_race = f" ({first_blocks_words(first_blocks)})" if first_blocks else ""
    left = f"; {analysis.left_out} cells with nought left out" if analysis.left_out else ""
    return f"{analysis.cells} cells, {analysis.runs} runs{of_race}; {rests}{left}"


def first_blocks_words(blocks: int) -> str:
    """Which runs of a race are a fixed sample."""
    first = "first block" if blocks == 1 else f"first {blocks} blocks"
    return f"those of the race's {first}, which every cell ran whatever was seen"


def shown_terms(analysis: FactorAnalysis) -> tuple[TermShare, ...]:
    """All factors, and the interactions that are proved or may explain a hundredth or more."""
    return tuple(
        each
        for each in analysis.terms
        if len(each.term) == 1
        or each.at_most >= 0.01
        or (each.p_value is not None and each.p_value <= ALPHA)
    )


def other_shares(analysis: FactorAnalysis) -> list[tuple[str, float]]:
    """What no single factor or interaction explains, by name."""
    named = [
        ("not separable between factors", analysis.shared_share),
        ("three factors and more together", analysis.higher_share),
        ("blocks (the host over time)", analysis.block_share),
        ("runs (scatter)", analysis.noise_share),
    ]
    return [(name, share) for name, share in named if share >= 5e-4]
