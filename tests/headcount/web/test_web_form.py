"""The forms of the page, and the links that hold a scenario."""

import pytest
from fastapi.testclient import TestClient

from headcount.cli.main import cli
from headcount.web.fields import QUESTIONS, command_of, fields_of
from headcount.web.scenario import LONGEST_VALUE, read_scenario
from tests.headcount.web.conftest import scenario


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_form_asks_for_every_option_that_does_not_write_run_code_or_tune_the_server(question: str) -> None:
    asked = {field.parameter.name for field in fields_of(question)}
    every = {parameter.name for parameter in command_of(question).params}
    server_s = {"no_store", "executor", "workers", "as_json", "json_schema", "config", "limit", "debug", "lifts"}
    outputs = {"report", "out", "requests_out", "steps_out", "emit", "manifest_formats"}
    assert every - asked <= server_s | outputs
    assert not asked & (server_s | outputs)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_field_of_a_form_has_a_label_and_a_help(page: TestClient, question: str) -> None:
    shown = page.get(f"/{question}").text
    for field in fields_of(question):
        assert f'for="f-{field.name}"' in shown
        assert field.help


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_form_says_labels_where_the_command_line_has_options(question: str) -> None:
    for field in fields_of(question):
        said = field.help.replace("--flag value", "") + field.default
        assert "--" not in said and "See 'headcount" not in said


def test_a_plan_asks_for_model_users_and_gpu_first() -> None:
    first = [field.name for field in fields_of("plan")]
    assert first[:5] == ["model", "users", "employees", "gpu", "workload"]
    assert first[5:8] == ["price", "quantization", "kv-cache-dtype"]


def test_what_a_form_holds_are_the_words_of_the_command_line() -> None:
    asked = scenario(gpus="1,2", enable_prefix_caching="off", suggest="on", max_model_len="8K")
    command = command_of("capacity")
    with command.make_context("capacity", asked.words) as context:
        assert context.params["gpus"] == (1, 2)
        assert context.params["enable_prefix_caching"] is False
        assert context.params["suggest"] is True
        assert context.params["max_model_len"] == 8192


@pytest.mark.parametrize("question", ["plan", "capacity", "compare", "whatif", "simulate", "memory"])
def test_the_engine_is_one_of_the_first_things_asked_and_both_are_offered(page: TestClient, question: str) -> None:
    engine = next(field for field in fields_of(question) if field.name == "engine")
    assert engine.is_first and tuple(engine.suggestions) == ("vllm", "sglang")
    shown = page.get(f"/{question}?engine=sglang").text
    assert 'value="sglang"' in shown and 'for="f-sglang-args"' in shown


def test_a_pasted_line_of_sglang_s_server_gives_the_command_s_options() -> None:
    line = "python -m sglang.launch_server --model-path /models/x --tp 2 --chunked-prefill-size 4096"
    asked = scenario("memory", sglang_args=line)
    with command_of("memory").make_context("memory", asked.words) as context:
        given = [context.params[name] for name in ("engine", "tensor_parallel_size", "chunked_prefill_size")]
    assert given == ["sglang", 2, 4096]


def test_a_link_holds_the_whole_scenario(page: TestClient) -> None:
    asked = scenario(gpus="1,2", traffic="context=x2", speculative_config='{"method": "ngram"}')
    again = read_scenario("capacity", asked.pairs)
    assert again == asked and again.key == asked.key
    assert 'value="context=x2"' in page.get(asked.path).text


def test_scenarios_that_differ_have_other_keys() -> None:
    keys = [scenario().key, scenario(gpus="1").key, scenario(gpus="2").key, scenario("memory").key]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("modle=x", "did you mean"),
        ("model=/etc/passwd", "path"),
        ("model=../secret", "path"),
        ("model=~/secret", "path"),
        ("model=C:\\secret", "path"),
        ("workload=./chat.toml", "path"),
        ('speculative-config={"model": "/etc/passwd"}', "path"),
        ("startup-log=/etc/passwd", "not uploaded"),
        ("latency-profile=mine.toml", "not uploaded"),
        ("router=os:system", "run code"),
        ("latency-model=os:system", "run code"),
        ("model=a&model=b", "given twice"),
        ("suggest=maybe", "neither on nor off"),
        ("gpu=upload:0123456789abcdef0123456789abcdef/x.toml", "takes no file"),
        ("report=/tmp/x.html", "no field"),
        ("config=x.toml", "no field"),
        ("model=a%00b", "null character"),
        (f"model={'a' * (LONGEST_VALUE + 1)}", "characters"),
    ],
)
def test_a_link_reaches_no_file_of_the_server_and_runs_no_code(page: TestClient, query: str, told: str) -> None:
    found = page.get(f"/capacity?{query}")
    assert found.status_code == 400
    assert told in found.text


@pytest.mark.parametrize("question", QUESTIONS)
def test_script_in_every_field_is_shown_as_text(page: TestClient, question: str) -> None:
    script = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    for field in fields_of(question):
        found = page.get(f"/{question}", params={field.name: script})
        assert "<script>alert" not in found.text and "<img" not in found.text


def test_every_question_of_the_page_is_a_command() -> None:
    assert {words[0] for words in QUESTIONS.values()} <= set(cli.commands or cli.list_commands(None))  # type: ignore[arg-type]
