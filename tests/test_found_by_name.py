"""Whatever is found by name can be added as one file in a folder of the user's."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrate.readers import find_format, read_measured
from files.names import UnknownNameError
from files.registry import SEARCH_PATH
from headcount.queries.workloads.generate import convert
from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.gpus.gpu import find_gpu, gpu_names
from kvcache.models.catalog import load_model
from kvcache.training.plan import TrainingPlan
from kvcache.training.states import find_optimizer
from simulator.latency.forms import FORMS
from workloads.load import load_preset, load_workload

GPU = """
memory_bytes = 48_000_000_000
memory_bandwidth_bytes_per_s = 1e12
interconnect = "pcie"
interconnect_bytes_per_s = 32e9
family = "ada"
usd_per_hour = 1.0
aliases = ["mine"]
[flops_per_s]
bf16 = 200e12
[source]
memory_bytes = "a data sheet"
memory_bandwidth_bytes_per_s = "a data sheet"
flops_per_s = "a data sheet"
interconnect_bytes_per_s = "a data sheet"
usd_per_hour = "an invoice"
"""
WEIGHT_FORMAT = """
weight_bits = 6
gemm_dtype = "bf16"
fallback_gemm_dtype = "bf16"
source = "a paper"
"""
TRACE_FORMAT = '''
"""One request a line: seconds, prompt tokens, output tokens, set off by bars."""
import numpy as np
from workloads.requests import NO_PREDECESSOR, independent_requests
from workloads.traces.trace_format import TraceFormat

def read(path, block_size, num_requests):
    rows = np.loadtxt(path, delimiter="|", ndmin=2, max_rows=num_requests)
    return independent_requests(
        arrival_s=rows[:, 0], prompt_tokens=rows[:, 1], output_tokens=rows[:, 2],
        follows=np.full(len(rows), NO_PREDECESSOR),
    )

FORMAT = TraceFormat(
    name="bars", looks_like="numbers set off by bars", recognises=lambda head: "|" in head, read=read, source="a test"
)
'''
TRACE_WRITER = '''
"""Bars: seconds, prompt tokens, output tokens."""
from workloads.writing.trace_writer import TraceWriter, lost_content, times_of

def write(table, path, block_size):
    rows = zip(times_of(table), table.prompt_tokens, table.output_tokens)
    path.write_text("".join(f"{at}|{prompt}|{output}\\n" for at, prompt, output in rows))

WRITER = TraceWriter(name="bars", suffixes=(".bars",), write=write, lost=lambda table, size: lost_content(table))
'''
READER = '''
"""A result with two numbers."""
from calibrate.measured_run import MeasuredRun

LOOKS_LIKE = "JSON with the key my_ttft"

def recognizes(path, head):
    return isinstance(head, dict) and "my_ttft" in head

def read(path):
    import json
    found = json.loads(path.read_text())
    return [MeasuredRun(source=path, tool="mine", aggregates={"ttft_s.mean": found["my_ttft"]})]
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_gpu_is_one_file(mine: Path) -> None:
    write(mine, "gpus/my-gpu.toml", GPU)
    assert "my-gpu" in gpu_names()
    assert find_gpu("mine") == find_gpu("my-gpu")
    assert find_gpu("my-gpu").memory_bytes == 48_000_000_000


def test_a_weight_format_is_one_file(mine: Path) -> None:
    write(mine, "weight_formats/six-bits.toml", WEIGHT_FORMAT)
    assert "six-bits" in quantization_names()
    assert find_quantization("six-bits").bits_per_weight == 6


def test_a_model_is_one_file(mine: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4'
    config += ', "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 2048}'
    write(mine, "models/me--tiny.json", f'{{"name": "me/tiny", "source": "a test", "aliases": [], "config": {config}}}')
    assert load_model("me/tiny").num_hidden_layers == 3


def test_a_way_to_train_is_one_file(mine: Path) -> None:
    write(mine, "optimizers/my-optimizer.toml", 'num_moments = 3\nsource = "measured here"')
    write(mine, "precisions/my-precision.toml", 'weight_bytes = 3\ngradient_bytes = 3\nsource = "measured here"')
    plan = TrainingPlan(precision="my-precision", optimizer="my-optimizer")
    assert plan.bytes_of.weight_bytes == find_optimizer("my-optimizer").num_moments == 3


def test_a_preset_is_one_file(mine: Path) -> None:
    chat = (Path(__file__).parents[1] / "workloads" / "presets" / "chat.toml").read_text(encoding="utf-8")
    write(mine, "presets/my-chat.toml", chat)
    assert load_preset("my-chat").think_time_s.mean() == load_preset("chat").think_time_s.mean()


def test_a_trace_format_is_one_file(mine: Path) -> None:
    write(mine, "trace_formats/bars.py", TRACE_FORMAT)
    trace = load_workload(write(mine, "log.txt", "0|100|10\n1|200|20\n"))
    assert trace.format == "bars"
    assert trace.table.prompt_tokens.tolist() == [100, 200]


def test_a_reader_is_one_file(mine: Path) -> None:
    write(mine, "readers/my_reader.py", READER)
    path = write(mine, "result.json", '{"my_ttft": 0.25}')
    assert find_format(path) == "my_reader"
    assert read_measured(path)[0].aggregates == {"ttft_s.mean": 0.25}


def test_a_latency_form_is_one_file(mine: Path) -> None:
    write(mine, "latency_models/half.py", '"""Half of it."""\ndef latency_model(deployment):\n    return deployment\n')
    assert FORMS.load("half").latency_model(3) == 3


def test_a_file_of_the_user_s_wins_and_a_broken_one_says_where(mine: Path) -> None:
    write(mine, "gpus/l4.toml", GPU)
    assert find_gpu("l4").memory_bytes == 48_000_000_000
    write(mine, "latency_models/broken.py", "1 / 0\n")
    with pytest.raises(ValueError, match=r"broken\.py: cannot be loaded, ZeroDivisionError"):
        FORMS.load("broken")


def test_a_name_never_leads_out_of_its_folder(mine: Path) -> None:
    write(mine, "outside.toml", GPU)
    for name in ("../outside", str(mine / "outside"), "outside.toml", ""):
        with pytest.raises(UnknownNameError):
            find_gpu(name)


@pytest.mark.parametrize(
    ("file", "text", "find", "told"),
    [
        ("gpus/mine.toml", "usd = 3" + GPU, find_gpu, "mine.toml: no key 'usd'; did you mean 'usd_per_hour'?"),
        ("gpus/mine.toml", GPU.replace("48_000_000_000", '"48 GB"'), find_gpu, "mine.toml: memory_bytes is '48 GB'"),
        ("gpus/mine.toml", GPU.replace('"pcie"', '"pcie4"'), find_gpu, "interconnect is 'pcie4'; it must be one of"),
        ("gpus/mine.toml", GPU.replace("bf16", "bfloat16"), find_gpu, "no key 'bfloat16' in flops_per_s; did you mean"),
        ("weight_formats/mine.toml", "x = 1" + WEIGHT_FORMAT, find_quantization, "mine.toml: no key 'x'; known: "),
        ("weight_formats/mine.toml", "group_size = nan" + WEIGHT_FORMAT, find_quantization, "group_size is nan; it"),
        ("weight_formats/mine.toml", 'absent_from = "x"' + WEIGHT_FORMAT, find_quantization, "absent_from is 'x'; it"),
        ("optimizers/mine.toml", "num_moments = -1", find_optimizer, "mine.toml: num_moments is -1; it must be"),
        ("models/mine.json", '{"name": "mine", "alias": []}', load_model, "mine.json: no key 'alias'; did you mean"),
        ("models/mine.json", '{"name": "m", "source": "", "config": {}}', load_model, "mine.json: it has no source; "),
    ],
)  # fmt: skip
def test_a_wrong_file_of_the_user_s_is_told_with_its_name(
    mine: Path, file: str, text: str, find: Callable[[str], object], told: str
) -> None:
    write(mine, file, text)
    with pytest.raises(ValueError, match=re.escape(told)):
        find("mine")


def test_a_model_file_of_the_user_s_may_have_aliases(mine: Path) -> None:
    config = '{"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 9'
    config += ', "vocab_size": 1000}'
    text = f'{{"name": "us/Support", "source": "a test", "aliases": ["helper"], "config": {config}}}'
    write(mine, "models/us--support.json", text)
    assert load_model("Helper") == load_model("us/support")
    write(mine, "models/us--support.json", text.replace('"num_hidden_layers": 3', '"num_hidden_layers": 5'))
    assert load_model("Helper").num_hidden_layers == 5, "a file that changed is read again"


@pytest.mark.parametrize(
    ("section", "code", "told"),
    [
        ("readers", READER.replace("return isinstance", "raise SystemExit(0)\n    "), "fails with SystemExit: 0"),
        ("readers", READER.replace("(path, head)", "(path)"), "fails with TypeError"),
        ("readers", READER.replace('"JSON with the key my_ttft"', "5"), "LOOKS_LIKE is no text"),
        ("readers", READER.replace("return [", "return None and ["), "read(path) must return a list of MeasuredRun"),
        ("readers", READER.replace("return [", "return [5] or ["), "read(path) must return a list of MeasuredRun"),
        ("readers", READER.replace("import json", "raise BaseException('b')"), "fails with BaseException: b; correct"),
        (
            "readers",
            READER.replace("import json", "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})"),
            "fails with Odd; correct it",
        ),
        ("readers", "raise BaseException('b')", "cannot be loaded, BaseException: b"),
        ("trace_formats", "FORMAT = 5", "FORMAT is no TraceFormat"),
        ("trace_formats", TRACE_FORMAT.replace('"|" in head', "exit(0)"), "fails with SystemExit: 0"),
        ("trace_formats", TRACE_FORMAT.replace("rows = ", "return 5\n    rows = "), "read returned no RequestTable"),
    ],
)  # fmt: skip
def test_code_of_the_user_s_that_fails_is_told_with_its_file(mine: Path, section: str, code: str, told: str) -> None:
    file = write(mine, f"{section}/mine.py", code)
    find: Callable[[Path], object] = read_measured if section == "readers" else load_workload
    with pytest.raises(ValueError, match=re.escape(f"{file}: ") + ".*" + re.escape(told)):
        find(write(mine, "result.json", '{"my_ttft|": 0.25, "my_ttft": 0.25}'))


def test_what_a_reader_of_the_user_s_says_of_a_file_stays(mine: Path) -> None:
    write(mine, "readers/mine.py", READER.replace("import json", "raise ValueError(f'{path}: holds no time')"))
    path = write(mine, "result.json", '{"my_ttft": 0.25}')
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: holds no time$"):
        read_measured(path)


def test_a_trace_is_written_in_a_format_of_the_user_s_own(mine: Path) -> None:
    write(mine, "trace_writers/bars.py", TRACE_WRITER)
    write(mine, "trace_formats/bars.py", TRACE_FORMAT)
    given = write(mine, "given.txt", "0.0|10|20\n2.5|7|1\n")
    found = convert(given, mine / "out.bars")
    assert (found.format, found.num_requests, found.lost) == ("bars", 2, ())
    assert (mine / "out.bars").read_text() == given.read_text()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("WRITER = 5", "WRITER is no TraceWriter"),
        (TRACE_WRITER.replace("rows = ", "1 / 0\n    rows = "), "fails with ZeroDivisionError"),
    ],
)
def test_a_writer_of_the_user_s_that_fails_is_told_with_its_file(mine: Path, code: str, told: str) -> None:
    file = write(mine, "trace_writers/mine.py", code)
    write(mine, "trace_formats/bars.py", TRACE_FORMAT)
    with pytest.raises(ValueError, match=re.escape(f"{file}: ") + ".*" + re.escape(told)):
        convert(write(mine, "given.txt", "0|10|20"), mine / "out.bars")
    assert not (mine / "out.bars").exists()


def installed(folder: Path, package: str) -> None:
    """A distribution with a GPU, which names the package under the entry points of plug-ins."""
    (folder / "acme_plugins" / "gpus").mkdir(parents=True)
    (folder / "acme_plugins" / "__init__.py").touch()
    (folder / "acme_plugins" / "gpus" / "acme-installed.toml").write_text(GPU, encoding="utf-8")
    about = folder / "acme_plugins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugins\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[headcount.plugins]\nacme = {package}\n", encoding="utf-8")


def test_what_an_installed_distribution_brings_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "acme_plugins")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "acme-installed" in gpu_names()
    assert find_gpu("acme-installed").memory_bytes == 48_000_000_000


def test_an_installed_distribution_that_names_no_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "acme_nothing")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="the plug-in 'acme' names 'acme_nothing', which is no package; reinstall it"):
        gpu_names()
