"""What `headcount memory` says, draws and refuses."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headcount.inputs.reading.deployments import resolve_model_and_gpu
from headcount.queries.memory import MemoryResult, candidates_of, memory
from headcount.views.of.memory import headline, pool
from headcount.views.report_data.memory import gpus_needed

Run = Callable[..., Any]
ON = ("--gpu", "h100-sxm")
UNKNOWN = {
    "model_type": "brandnew", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 8192,
}  # fmt: skip


def answer(headcount: Run, *arguments: object) -> dict[str, Any]:
    ran = headcount("memory", *ON, *arguments, "--json")
    assert (ran.code, ran.err) == (0, "")
    return dict(json.loads(ran.out))


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A model of an architecture that is not known."""
    (tmp_path / "brandnew").mkdir()
    (tmp_path / "brandnew" / "config.json").write_text(json.dumps(UNKNOWN))
    return tmp_path / "brandnew"


@pytest.fixture
def with_a_cache(tmp_path: Path) -> Path:
    """A checkpoint of llm-compressor that declares an FP8 KV cache."""
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    quantization = {
        "quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}},
        "kv_cache_scheme": scheme,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(
        json.dumps(UNKNOWN | {"model_type": "llama", "quantization_config": quantization})
    )
    return tmp_path / "config.json"


# The answer


def test_a_model_that_fits_says_by_how_much_and_what_it_holds(headcount: Run) -> None:
    ran = headcount("memory", *ON, "--model", "llama-3.1-8b", "--mean-context", "4K", "--users", "1,200")
    assert (ran.code, ran.err) == (0, "")
    found = answer(headcount, "--model", "llama-3.1-8b", "--mean-context", "4K", "--users", "1,200")
    assert f"Fits: {found['spare_bytes'] / 2**30:,.1f} GiB per GPU are free beyond one request" in ran.out
    assert f"{found['conversations_at_once']} conversations of 4,096 tokens (--mean-context) at once" in ran.out
    held = {row["users"]: row["tokens_per_user"] for row in found["tokens_per_user"]}
    assert f"1 → {held[1]:,}, 200 → {held[200]:,}" in ran.out
    assert found["conversations_at_once"] == (found["num_gpu_blocks"] - 1) // (4096 // 16)


def test_a_declared_kv_cache_is_what_auto_stands_for(headcount: Run, with_a_cache: Path) -> None:
    found = answer(headcount, "--model", with_a_cache)
    explicit = answer(headcount, "--model", with_a_cache, "--kv-cache-dtype", "bfloat16")
    before = answer(headcount, "--model", with_a_cache, "--vllm-version", "0.14.1")
    assert (found["kv_cache_dtype"], explicit["kv_cache_dtype"], before["kv_cache_dtype"]) == (
        "fp8",
        "bfloat16",
        "auto",
    )
    assert found["num_gpu_blocks"] // 2 == explicit["num_gpu_blocks"]
    rows = {row["name"]: row for row in found["assumptions"]}
    assert rows["KV cache"]["value"] == "fp8"
    assert rows["KV cache"]["source"].startswith("declared by the checkpoint (kv_cache_scheme with type float")
    text = headcount("memory", *ON, "--model", with_a_cache).out
    assert "fp8 KV cache" in text
    assert "declared by the checkpoint" in " ".join(text.split())


def test_the_mean_context_is_the_chat_preset_s_unless_given(headcount: Run) -> None:
    found = answer(headcount, "--model", "llama-3.1-8b")
    assert "chat preset" in found["mean_context_source"]
    assert 3000 < found["mean_context_tokens"] < 4500
    short = answer(headcount, "--model", "llama-3.1-8b", "--max-model-len", "2048")
    assert short["mean_context_tokens"] < 2048


@pytest.mark.parametrize(
    ("arguments", "tokens", "source"),
    [(("--mean-context", "9K", "--max-model-len", "4K"), 4096, "cut to max_model_len"),
     (("--max-model-len", "256"), 256, "too short for the chat preset")],
    ids=["cut", "too-short"],
)  # fmt: skip
def test_no_conversation_is_longer_than_a_request_may_be(
    headcount: Run, arguments: tuple[str, ...], tokens: int, source: str
) -> None:
    found = answer(headcount, "--model", "llama-3.1-8b", *arguments)
    assert found["mean_context_tokens"] == tokens
    assert source in found["mean_context_source"]


def test_every_remedy_that_is_offered_makes_it_fit(headcount: Run) -> None:
    for model in ("llama-3.1-70b", "llama-4-scout"):
        ran = headcount("memory", *ON, "--model", model, "--json")
        assert ran.code == 2
        remedies = json.loads(ran.out)["remedies"]
        assert remedies
        for remedy in remedies:
            options = [part for pair in remedy.items() for part in pair]
            assert options[0] in ran.err
            assert answer(headcount, "--model", model, *options)["fits"]


def test_fewer_sequences_are_a_remedy_where_their_logits_are_what_does_not_fit(headcount: Run) -> None:
    """vLLM 0.33 profiles the logits of 1,024 sequences: gpt-oss-120b on one H100, as often served, lacks 1.4 GiB."""
    asked = ("--model", "gpt-oss-120b", "--gpu", "h100-sxm", "--vllm-version", "0.33.0")
    remedies = json.loads(headcount("memory", *asked, "--json").out)["remedies"]
    assert {"--max-num-seqs": "64"} in remedies, "with 256 it fits at the mean of its KV blocks, not at their low end"
    assert {"--kv-cache-dtype": "fp8"} not in remedies
    assert answer(headcount, *asked, "--max-num-seqs", "64")["fits"]
    assert not json.loads(headcount("memory", *asked, "--max-num-seqs", "512", "--json").out)["fits"]


def test_what_does_not_fit_holds_no_conversation(headcount: Run) -> None:
    ran = headcount("memory", *ON, "--model", "deepseek-r1", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["fits"], found["conversations_at_once"], found["spare_bytes"]) == (2, False, 0, 0)
    assert ran.err.count("\n") == 1
    text = headcount("memory", *ON, "--model", "deepseek-r1").out
    assert "Does not fit" in text
    assert max(map(len, text.splitlines()[:12])) <= 160  # bars end where the table ends


def with_interval(low: int, high: int, max_model_len: int) -> MemoryResult:
    found = memory("llama-3.1-8b", "h100-sxm", max_model_len=max_model_len, mean_context=1000)
    budget = replace(found.budget, num_gpu_blocks_low=low, num_gpu_blocks_high=high)
    return replace(found, budget=budget)


def test_an_interval_of_the_blocks_is_shown_where_there_is_one() -> None:
    found = with_interval(27_000, 29_000, 131_072)
    assert "90 % interval: 27,000 to 29,000" in pool(found)[0]
    assert found.to_json()["num_gpu_blocks_low"] == 27_000
    assert "it is close" not in headline(found)


def test_a_fit_that_the_interval_does_not_bear_is_said_to_be_close() -> None:
    """28,065 blocks hold 448,000 tokens, 27,000 do not."""
    assert "it is close: at the low end" in headline(with_interval(27_000, 29_000, 448_000))
    assert "it is close" not in headline(with_interval(28_060, 29_000, 448_000))


# The comparison


def test_sizes_and_formats_are_compared(headcount: Run) -> None:
    found = answer(headcount, "--model", "llama-3.1-70b", "--max-model-len", "8K", "--compare")
    assert len(found["comparison"]) == 24
    assert {row["quantization"] for row in found["comparison"]} == {"none", "fp8", "awq"}
    alone = answer(
        headcount, "--model", "llama-3.1-70b", "--max-model-len", "8K", "-tp", "4", "--kv-cache-dtype", "fp8"
    )
    row = next(
        row
        for row in found["comparison"]
        if (row["tensor_parallel_size"], row["kv_cache_dtype"], row["quantization"]) == (4, "fp8", "none")
    )
    assert row["is_checkpoint_format"]
    assert all(row[key] == alone[key] for key in row if key != "is_checkpoint_format")
    text = headcount("memory", *ON, "--model", "llama-3.1-70b", "--max-model-len", "8K", "--compare").out
    assert "awq: fits from TP 1" in text
    assert re.search(r"no, [\d.]+ GiB short", text)
    assert re.search(r"yes, [\d.]+ GiB to spare", text)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "llama-3.1-8b", "qwen3-32b"])
@pytest.mark.parametrize("gpu", ["h100-sxm", "l4"])
def test_every_way_that_is_said_to_fit_does(model: str, gpu: str) -> None:
    """The first screen of what does not fit as asked, beside each way asked alone."""
    said = gpus_needed(candidates_of(resolve_model_and_gpu(model, gpu, {})))
    ways = re.findall(r"(\d+)(?: GPUs?)?(?: with ([^;]+))?", said.removeprefix("it needs "))
    assert ways
    for size, names in ways:
        for name in names.split(" or "):
            weights = re.search(r"([\w-]+) weights", name)
            cache = re.search(r"an (\w+) KV cache", name)
            how = {"quantization": weights[1] if weights else None, "kv_cache_dtype": cache[1] if cache else "auto"}
            assert memory(model, gpu, tensor_parallel_size=int(size), **how).fits
            assert size == "1" or not memory(model, gpu, tensor_parallel_size=int(size) // 2, **how).fits


def test_what_is_given_is_not_varied(headcount: Run) -> None:
    found = answer(
        headcount, "--model", "llama-3.1-8b", "--compare", "-tp", "2", "-q", "fp8", "--kv-cache-dtype", "fp8"
    )
    (row,) = found["comparison"]
    assert (row["tensor_parallel_size"], row["quantization"], row["kv_cache_dtype"]) == (2, "fp8", "fp8")


def test_refused_splits_are_told_once(headcount: Run) -> None:
    out = headcount("memory", *ON, "--model", "phi-4", "--compare").out
    assert out.count("tensor_parallel_size 4 neither divides nor") == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [(("--model", "kimi-k2.5", "--gpu", "l4"), "in none of these ways; take a larger GPU"),
     (("--model", "llama-3.1-8b", "--num-gpu-blocks-override", "500"), "leave out --num-gpu-blocks-override"),
     (("--model", "phi-4", "-tp", "4"), "10 KV heads")],
    ids=["fits-nowhere", "override", "refused"],
)  # fmt: skip
def test_a_comparison_without_an_answer_is_exit_2(headcount: Run, arguments: tuple[str, ...], part: str) -> None:
    ran = headcount("memory", *ON, *arguments, "--compare")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert part in ran.err


# What is assumed


def test_an_unknown_architecture_is_said_to_be_assumed(headcount: Run, unknown: Path) -> None:
    ran = headcount("memory", *ON, "--model", unknown)
    assert ran.code == 0
    assert "assumed: architecture, llama-like" in ran.out.split("per GPU  ")[0]
    (row,) = answer(headcount, "--model", unknown)["architecture_assumptions"]
    assert row["name"] == "architecture"
    assert "'brandnew' is not known" in row["source"]


LOAD = ("--input-len", "100", "--output-len", "5", "--concurrency", "1")
SEARCH = ("--gpus", "1", "--replications", "2", "--max-num-seqs", "2")


@pytest.mark.parametrize(
    "command", [("memory",), ("simulate", *LOAD), ("capacity", *SEARCH)], ids=lambda words: words[0]
)
def test_strict_refuses_an_unknown_architecture(headcount: Run, command: tuple[str, ...], unknown: Path) -> None:
    ran = headcount(*command, *ON, "--model", unknown, "--strict")
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
    assert "--strict: assumed: architecture, llama-like" in ran.err
    assert "'brandnew' is not known" in ran.err


@pytest.mark.parametrize("command", [("simulate", *LOAD), ("capacity", *SEARCH)], ids=lambda words: words[0])
def test_strict_refuses_step_times_that_were_not_measured(headcount: Run, command: tuple[str, ...]) -> None:
    small = ("--model", "llama-3.1-8b", "--max-model-len", "2K", "--strict")
    ran = headcount(*command, *small, "--gpu", "l4")
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
    assert "--strict: step times of l4: specifications only" in ran.err


def test_strict_takes_what_is_known_measured_or_given(headcount: Run) -> None:
    small = ("--model", "llama-3.1-8b", "--max-model-len", "2K", "--strict")
    assert headcount("memory", *small, *ON).code == 0
    assert headcount("simulate", *LOAD, *small, *ON).code == 0
    assert headcount("simulate", *LOAD, *small, "--gpu", "l4", "--latency-model", "constant").code == 0


# Files


class Page(HTMLParser):
    """Every address that a browser would load, every tag left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"], ids=["fits", "does-not-fit"])
def test_the_page_is_one_file_with_verdict_chart_and_comparison(headcount: Run, model: str, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="drawing needs the extra 'report'")
    path = tmp_path / "memory.html"
    headcount("memory", *ON, "--model", model, "--compare", "--report", path)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert all(address.startswith(("#", "data:")) for address in page.loaded)
    assert "It needs " in text
    assert "prefers-color-scheme: dark" in text
    assert "<svg " in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["memory.html"]


def test_the_drawing_is_an_svg_of_its_own(headcount: Run, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="drawing needs the extra 'report'")
    path = tmp_path / "memory.SVG"
    assert headcount("memory", *ON, "--model", "llama-3.1-8b", "--report", path).code == 0
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    said = "".join(root.itertext())
    assert "of each h100-sxm at TP 1 hold the KV cache" in said
    assert "KV cache" in said


@pytest.mark.parametrize(
    ("name", "part"),
    [("memory.doc", "must end in .csv or .html"), ("memory", "must end in .csv or .html"),
     ("nowhere/memory.svg", "there is no folder")],
)  # fmt: skip
def test_a_file_that_cannot_be_drawn_is_told_before_anything(
    headcount: Run, name: str, part: str, tmp_path: Path
) -> None:
    ran = headcount("memory", *ON, "--model", "llama-3.1-8b", "--report", tmp_path / name)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_the_report_extra_a_drawing_is_refused_and_the_rest_answers(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('jinja2', 'markupsafe'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "absent = ('jinja2',)\n"
        "importlib.util.find_spec = lambda name, *more: None if name in absent else found(name, *more)\n"
        "from headcount.cli.main import main\n"
        "main()"
    )
    line = [sys.executable, "-c", program, "memory", *ON, "--model", "llama-3.1-8b", "--mean-context", "1K"]
    plain = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (plain.returncode, plain.stderr) == (0, "")
    drawn = subprocess.run([*line, "--report", str(tmp_path / "x.svg")], capture_output=True, text=True, check=False)
    assert drawn.returncode == 2
    assert "install headcount[report]" in drawn.stderr
    assert not list(tmp_path.iterdir())


def test_too_few_blocks_given_are_answered_with_how_many_it_takes(headcount: Run) -> None:
    ran = headcount("memory", "--model", "llama-3.1-8b", *ON, "--num-gpu-blocks-override", 5)
    assert ran.code == 2
    assert "It fits with --num-gpu-blocks-override 8193." in ran.out
    assert "larger GPU" not in ran.out
    assert headcount("memory", "--model", "llama-3.1-8b", *ON, "--num-gpu-blocks-override", 8193).code == 0


def test_replicas_that_do_not_divide_the_experts_are_named(headcount: Run) -> None:
    ran = headcount("memory", "--model", "qwen3-30b-a3b", *ON, "-dp", 7)
    assert (ran.code, ran.out) == (2, "")
    assert "tensor_parallel_size 1 × data_parallel_size 7 = 7 does not divide the expert width 768" in ran.err


def test_more_context_than_the_model_takes_is_warned_of_and_never_advised() -> None:
    found = memory("llama-3.1-8b", "h100-sxm", max_model_len=200_000)
    assert [note.severity for note in found.diagnostics if note.code == "beyond-model-length"] == ["warning"]
    assert "longer than the 131,072 tokens" in str(found.diagnostics)
    assert "beyond-model-length" not in [note.code for note in memory("llama-3.1-8b", "h100-sxm").diagnostics]
    with_less = memory("llama-3.1-8b", "h100-sxm", max_model_len=1_000_000)
    lengths = re.findall(r"--max-model-len (\d+)", str(with_less))
    assert lengths
    assert max(map(int, lengths)) <= 131_072


@pytest.mark.parametrize(("model", "takes"), [("gpt-oss-20b", "sliding windows take"), ("llama-3.1-8b", "")])
def test_blocks_times_their_size_are_the_tokens_or_the_text_says_what_takes_the_others(model: str, takes: str) -> None:
    found = memory(model, "h100-sxm")
    is_plain = found.budget.kv_cache_tokens == found.budget.num_gpu_blocks * found.budget.block_size
    assert is_plain != bool(takes)
    assert f"{takes} the other blocks" in pool(found)[0] if takes else "other blocks" not in pool(found)[0]
