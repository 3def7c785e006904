"""A recording is complete at every moment, goes on where it was stopped, and tells what a step takes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import convert

from calibrate.interpreters.interpreter_build import environment
from calibrate.record.design import expected_table
from calibrate.record.loads import Limits, Load, Phase
from calibrate.record.recorded_engine import PROBE, Asked
from calibrate.record.recorder import Progress, known_gpu, record
from calibrate.record.recording_files import RecordingFolder, batch_sums, read_recording
from calibrate.record.step_terms import term_matrix
from calibrate.recording import EVENLY, STEP_COLUMNS
from simulator.latency.step_time import BatchSums

FAKE = Path(__file__).parent / "fake_engine.py"
ASKED = Asked(model="tiny", precision=0.02)
SUMS = [name for name in STEP_COLUMNS if not name.endswith("_s")]


class Fake:
    """A fake engine with what is to go wrong in it."""

    def __init__(self, wishes: Path, out: Path) -> None:
        self.wishes, self.out = wishes, out

    def record(self, asked: Asked = ASKED, **options: Any) -> Progress:
        return record(asked, Path(sys.executable), self.out, probe=FAKE, **options)

    def wish(self, name: str, value: object) -> None:
        (self.wishes / name).write_text(str(value), encoding="utf-8")

    def loads(self) -> list[str]:
        """What the engine was told to run, over all its starts."""
        return (self.wishes / "loads").read_text(encoding="utf-8").split()

    def is_gone(self) -> bool:
        try:
            os.kill(int((self.wishes / "pid").read_text(encoding="utf-8")), 0)
        except ProcessLookupError:
            return True
        return False

    def files(self) -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (self.out / "steps").iterdir()}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    wishes = tmp_path / "wishes"
    wishes.mkdir()
    monkeypatch.setenv("FAKE_ENGINE", str(wishes))
    return Fake(wishes, tmp_path / "recording")


@pytest.mark.slow
def test_the_plan_s_loads_are_recorded_until_a_step_s_time_is_known_as_well_as_asked_for(fake: Fake) -> None:
    found = fake.record()
    assert found.is_complete and found.times is not None
    assert found.times.relative_error <= ASKED.precision
    recording = read_recording(fake.out)
    assert tuple(recording.steps.columns[: len(STEP_COLUMNS)]) == STEP_COLUMNS
    assert found.recorded_steps == len(recording.steps)
    predicted = term_matrix(recording.steps) @ found.times.seconds
    assert np.abs(predicted / recording.steps["cycle_s"] - 1).max() < 0.06  # the fake engine's steps scatter by 3 %
    assert recording.options["max_num_seqs"] == 16 and recording.options["model"] == "tiny"
    assert recording.environment["clock"] == "thread_cpu" and recording.environment["num_gpu_blocks"] == 1000
    assert recording.excluded["steps that warm the engine up"] > 0
    assert fake.is_gone()


def test_steps_have_the_sums_that_the_plan_foresaw(fake: Fake) -> None:
    fake.record()
    content = json.loads((fake.out / "recording.json").read_text(encoding="utf-8"))
    steps = read_recording(fake.out).steps
    limits = Limits(max_num_seqs=16, max_num_batched_tokens=256, max_model_len=1024, kv_tokens=16_000)
    foreseen = [expected_table(convert(entry["load"], Load), limits) for entry in content["loads"]]
    assert sum(map(len, foreseen)) == len(steps)
    for name in SUMS:
        assert np.array_equal(np.concatenate([table[name] for table in foreseen]), steps[name]), name


@pytest.mark.slow
def test_a_recording_whose_engine_is_killed_goes_on_with_the_load_that_was_cut_off(fake: Fake) -> None:
    fake.wish("die", 100)
    with pytest.raises(ValueError, match=r"ended under .*: the engine: killed \(all of it is in .*engine\.log"):
        fake.record()
    before = fake.files()
    assert read_recording(fake.out).steps["load"].nunique() == len(before) > 0
    assert fake.record().is_complete
    after = fake.files()
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before
    runs = [name for name in fake.loads() if name not in {"start", "warm-up"}]
    assert len(runs) == len(after) + 1  # the one that was cut off ran twice


def test_a_recording_stopped_by_its_user_is_usable_and_leaves_no_engine_behind(fake: Fake) -> None:
    def stop_at_120(progress: Progress) -> None:
        if progress.steps == 120:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake.record(watch=stop_at_120)
    assert fake.is_gone()
    assert 0 < len(read_recording(fake.out).steps) <= 120
    assert fake.record().is_complete


@pytest.mark.slow
def test_a_recording_that_is_precise_enough_starts_no_engine(fake: Fake) -> None:
    first = fake.record()
    again = fake.record()
    assert fake.loads().count("start") == 1
    assert (again.is_complete, again.recorded_steps) == (True, first.recorded_steps)
    finer = fake.record(Asked(model="tiny", precision=0.015))
    assert finer.recorded_steps > first.recorded_steps
    assert finer.times is not None and finer.times.relative_error <= 0.015


def test_no_load_begins_after_the_time_is_over(fake: Fake) -> None:
    found = fake.record(max_seconds=1e-3)
    assert found.planned == found.done == 1
    assert fake.record(max_seconds=60).recorded_steps > found.recorded_steps


@pytest.mark.slow
def test_a_load_that_the_engine_cannot_run_is_left_out_and_counted(fake: Fake) -> None:
    fake.wish("refuse", "mixed")
    found = fake.record()
    assert found.failed > 0 and found.done > 0
    assert read_recording(fake.out).excluded["loads that the engine could not run"] == found.failed


def test_loads_of_one_s_own_are_run_as_they_are(fake: Fake) -> None:
    mine = Load(name="mine", phases=(Phase(add=(20, 30), steps=3),))
    assert fake.record(loads=[mine]).done == 1
    assert read_recording(fake.out).steps["tokens"].tolist() == [50, 2, 2, 2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Asked(model="tiny", engine={"max_num_seqs": 8}), "of other options: engine.max_num_seqs is None there, 8 now"),
        (Asked(model="llama-3.1-8b"), "model is tiny there, llama-3.1-8b now"),
        (Asked(model="tiny", temperature=1.0), "temperature is 0.0 there, 1.0 now"),
    ],
)
def test_a_folder_of_another_deployment_is_refused(fake: Fake, change: Asked, told: str) -> None:
    fake.record(max_seconds=1e-3)
    with pytest.raises(ValueError, match=told):
        fake.record(change)


def test_a_folder_of_another_release_is_refused(fake: Fake) -> None:
    fake.record(max_seconds=1e-3)
    fake.wish("version", "0.31.0")
    with pytest.raises(ValueError, match=r"of another engine: vllm_version is 0\.32\.0 there, 0\.31\.0 now"):
        fake.record()


def test_an_engine_that_does_not_start_is_told_with_its_own_words(fake: Fake) -> None:
    fake.wish("no_start", 1)
    with pytest.raises(ValueError, match="the engine: no such argument"):
        fake.record()
    (fake.wishes / "no_start").unlink()
    assert fake.record().is_complete


def test_a_gpu_is_named_as_the_catalog_names_it(fake: Fake) -> None:
    fake.record(max_seconds=1e-3)
    assert "gpu" not in read_recording(fake.out).options  # it says that it is a "fake"
    assert known_gpu("NVIDIA H100 80GB HBM3") == {"gpu": "h100-sxm"}


def _make_file(out: Path) -> None:
    out.write_text("", encoding="utf-8")


def _make_strangers(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("", encoding="utf-8")


def _make_broken(out: Path) -> None:
    out.mkdir()
    (out / "recording.json").write_text("{", encoding="utf-8")


def _make_other(out: Path) -> None:
    out.mkdir()
    RecordingFolder(out).write({"url": "http://there/metrics"}, "server metrics")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_make_file, "is a file"),
        (_make_strangers, "holds files but no recording"),
        (_make_broken, "is not JSON"),
        (_make_other, "not a recording of engine steps but of server metrics"),
    ],
)
def test_a_folder_that_cannot_be_recorded_into_is_told(fake: Fake, make: Callable[[Path], None], told: str) -> None:
    make(fake.out)
    with pytest.raises(ValueError, match=told):
        fake.record()


def test_a_damaged_recording_is_told(fake: Fake) -> None:
    with pytest.raises(ValueError, match="holds no recording; make one with"):
        read_recording(fake.out)
    fake.record(max_seconds=1e-3)
    (steps,) = (fake.out / "steps").iterdir()
    text = steps.read_text(encoding="utf-8")
    steps.write_text(text.replace("cycle_s", "cycles"), encoding="utf-8")
    with pytest.raises(ValueError, match="has no column cycle_s"):
        read_recording(fake.out)
    steps.unlink()
    with pytest.raises(ValueError, match="is missing, though"):
        read_recording(fake.out)


@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_sums_are_those_of_the_simulator(window: int) -> None:
    rng = np.random.default_rng(window)
    computed = rng.integers(0, 200, 300)
    scheduled = np.where(rng.random(300) < 0.5, 1, rng.integers(2, 100, 300))
    wanted = BatchSums()
    for start, tokens in zip(computed.tolist(), scheduled.tolist(), strict=True):
        wanted.add(start=start, end=start + tokens, is_sampled=True, is_decode=tokens == 1, window=window)
    assert batch_sums(computed.tolist(), scheduled.tolist(), 0, window) == wanted.__dict__


@pytest.mark.slow
def test_a_real_engine_takes_the_steps_that_were_foreseen(inferring_vllm_python: Path, tmp_path: Path) -> None:
    engine = {"max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 256, "block_size": 32}
    asked = Asked(model="tiny", engine=engine, precision=0.1)
    found = record(asked, inferring_vllm_python, tmp_path / "recording", max_seconds=60)
    assert found.failed == 0 and found.done > 1
    content = json.loads((tmp_path / "recording" / "recording.json").read_text(encoding="utf-8"))
    recording = read_recording(tmp_path / "recording")
    limits = Limits(max_num_seqs=16, max_num_batched_tokens=256, max_model_len=1024, kv_tokens=10**6)
    done = [convert(entry["load"], Load) for entry in content["loads"] if entry["status"] == "done"]
    foreseen = [expected_table(load, limits) for load in done]
    for name in SUMS:
        assert np.array_equal(np.concatenate([table[name] for table in foreseen]), recording.steps[name]), name
    assert (recording.steps["cycle_s"] > recording.steps["schedule_s"]).all()
    assert (recording.steps["wall_s"] > 0.5 * recording.steps["cycle_s"]).all()
    assert recording.options["max_num_seqs"] == 16 and recording.environment["num_gpu_blocks"] > 0
    assert "KV cache size" in recording.environment["startup_log"]


CHOICES = """
import sys
import record_probe as probe

def watched(worker):
    for name, module in worker.get_model().named_modules():
        if name.endswith(".router"):
            module.register_forward_hook(seen)

def seen(module, given, found):
    chosen.append((found[0] if isinstance(found, tuple) else found).topk(4).indices)

spread = probe.spread_routers
probe.spread_routers = spread if sys.argv[2] == "spread" else lambda worker: 0
job = {"model_folder": sys.argv[1], "engine": {"max_model_len": 512}, "temperature": 1.0}
recorder, chosen = probe.Recorder(job), []
recorder.engine.collective_rpc(watched)
phase = {"keep": None, "add": [64] * 16, "budget": None, "chunk": None, "steps": 4}
list(recorder.run({"seed": 5, "phases": [phase]}))
decodes = [experts for experts in chosen if len(experts) == 16]
print(recorder.about().get("experts"), [len(set(experts.flatten().tolist())) for experts in decodes])
"""


@pytest.mark.slow
def test_random_routers_of_a_real_engine_choose_all_experts(inferring_vllm_python: Path, tmp_path: Path) -> None:
    """16 tokens choose 4 of 32 experts each: 28 in the mean if evenly, 4 with gpt-oss's random biases."""
    config = {
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "torch_dtype": "bfloat16", "vocab_size": 4096,
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 32,
        "num_key_value_heads": 4, "max_position_embeddings": 2048, "num_local_experts": 32, "num_experts_per_tok": 4,
        "sliding_window": 128, "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    told = {}
    for how in ("as vLLM draws them", "spread"):
        command = [str(inferring_vllm_python), "-c", CHOICES, str(tmp_path), how]
        around = {**environment(), "PYTHONPATH": str(PROBE.parent)}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
        assert ran.returncode == 0, ran.stderr[-2000:]
        said, _, counts = ran.stdout.strip().splitlines()[-1].partition(" ")
        told[how] = said, json.loads(counts)
    (_, alike), (said, evenly) = told["as vLLM draws them"], told["spread"]
    assert alike and max(alike) <= 8
    assert said == EVENLY and min(evenly) >= 22
