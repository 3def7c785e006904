"""Published deployments of wide expert parallelism come out as the page says."""

from validation.wide_ep import BAR, DEEPSEEK, RUNGS, SGLANG_H100, VLLM_GB200, VLLM_H200, simulated

WHOLE = (VLLM_H200, VLLM_GB200)  # deployments of which every figure is within the bar
DECODES = (SGLANG_H100, DEEPSEEK)  # of these, the first decode alone


def test_two_deployments_and_the_decodes_of_two_more_are_within_the_bar() -> None:
    errors = [(rung, simulated(rung) / rung.tokens_per_s - 1) for rung in RUNGS]
    whole = [error for rung, error in errors if rung.deployment in WHOLE]
    assert len(whole) == 11
    assert max(map(abs, whole)) <= BAR
    first = {rung.deployment: error for rung, error in reversed(errors) if rung.answer}
    assert all(abs(first[name]) <= BAR for name in DECODES)


def test_what_is_missed_is_slower_than_measured_and_hides_its_exchange() -> None:
    """A rung that comes to hold, or that no overlap explains, must change the page."""
    missed = [rung for rung in RUNGS if abs(simulated(rung) / rung.tokens_per_s - 1) > BAR]
    assert len(missed) == 6
    assert all(rung.overlaps and simulated(rung) < rung.tokens_per_s for rung in missed)
