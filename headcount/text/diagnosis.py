"""What is said of a server that was measured: as fast as it should be, and what explains it if not."""

from calibrate.check.doctor import Diagnosis, Explanation, Fit

_NAMES = {"tpot": "TPOT", "ttft": "TTFT", "e2e": "E2E"}


def diagnosis_lines(diagnosis: Diagnosis | None) -> list[str]:
    """The verdict, then what explains it, one line each; nothing where no verdict is possible."""
    if diagnosis is None:
        return []
    lines = [f"verdict: {_verdict(diagnosis)}", f"  {_figures(diagnosis.fit)}"]
    if diagnosis.fit.is_expected:
        return lines
    if not diagnosis.explanations:
        return [*lines, f"  none of the {diagnosis.tried} settings tried explains it; check each run below"]
    first, *others = diagnosis.explanations
    lines.append(f"  best explanation of {diagnosis.tried} tried: {_explained(first)}")
    return [*lines, *(f"  equally good: {_explained(each)}" for each in others)]


def _verdict(diagnosis: Diagnosis) -> str:
    fit, gpu = diagnosis.fit, diagnosis.gpu
    if fit.is_expected:
        return f"your server is as fast as expected for {gpu}"
    if not fit.outside:
        run, name, ratio = fit.worst
        return (
            f"your server is as fast as expected in the median, but {_NAMES[name]} of {run} is {ratio:.2f} × simulated"
        )
    lead = fit.outside[0]
    ratio = fit.ratios[lead]
    speed = "slower" if ratio > 1 else "faster"
    change = f"{abs(ratio - 1):.0%} {'higher' if ratio > 1 else 'lower'}"
    if lead == "ttft":
        return f"your server is {speed} than expected for {gpu}: TTFT is {change}, TPOT is as expected"
    return f"your server is {speed} than expected for {gpu}: {_NAMES[lead]} is {change}"


def _figures(fit: Fit) -> str:
    limits = " and ".join(f"±{limit - 1:.0%} ({_NAMES[name]})" for name, limit in fit.limits.items())
    return f"measured / simulated, median over runs: {_ratios(fit)}; 90 % of servers lie within {limits}"


def _explained(explanation: Explanation) -> str:
    rest = "" if explanation.fit.is_expected else "; the rest remains unexplained"
    return f"{explanation.words}: then {_ratios(explanation.fit)}{rest}"


def _ratios(fit: Fit) -> str:
    return ", ".join(f"{_NAMES[name]} {ratio:.2f} ×" for name, ratio in fit.ratios.items())
