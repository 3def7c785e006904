"""The benchmark that types what the measured table says gives what the command prints."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.headcount.conftest import Ran
from validation.accuracy.outsider import command_line, typed
from validation.measured.settings import read_settings

DATA = Path(__file__).parents[3] / "../shared/data"


@pytest.mark.skipif(
    not (DATA / "measured" / "silicon_vllm_runs.csv").is_file(), reason="the folder of public measurements is absent"
)
def test_five_settings_as_typed_are_what_the_command_prints(headcount: Callable[..., Ran]) -> None:
    settings = sorted(read_settings(DATA)[0], key=repr)
    small = [setting for setting in settings if setting.concurrency <= 32 and setting.tp >= 4]
    for setting in small[:: len(small) // 5][:5]:
        ran = headcount(*command_line(setting), "--json")
        assert ran.code == 0
        printed = json.loads(ran.out)
        assert typed(setting) == (printed["ttft_s"]["mean"], printed["tpot_s"]["mean"])
