"""The tools of an agent: what they take, what they run, and what they answer."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the tools of an agent need the extra [mcp]")

import anyio
from click.testing import CliRunner
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from files.errors import HeadcountError
from headcount.agents.server import command_line, input_schema, make_server, tools
from headcount.cli.main import cli
from headcount.web.fields import QUESTIONS, fields_of
from headcount.web.schemas import options_schema

ASKED: Mapping[str, object] = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}


def asked(of: Callable[[Client], Awaitable[Any]], server: Any = None) -> Any:
    """What a client gets."""

    async def connected() -> Any:
        async with Client(server or make_server()) as client:
            return await of(client)

    return anyio.run(connected)


def called(tool: str, given: Mapping[str, object], server: object = None) -> Any:
    return asked(lambda client: client.call_tool(tool, dict(given)), server)


@pytest.mark.parametrize("question", QUESTIONS)
def test_inputs_have_a_schema_that_takes_what_the_command_takes(question: str) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    for schema in (input_schema(question), options_schema(fields_of(question))):
        validator.check_schema(schema)
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(each["description"] for each in schema["properties"].values())


def test_the_command_line_prints_the_schema_of_its_options() -> None:
    printed = CliRunner().invoke(cli, ["capacity", "--json-schema"])
    schema = json.loads(printed.stdout)
    assert printed.exit_code == 0 and schema["title"].endswith("capacity")
    assert schema["properties"] == options_schema(fields_of("capacity"))["properties"]


def test_every_question_is_a_tool_that_changes_nothing() -> None:
    found = asked(lambda client: client.list_tools()).tools
    assert [each.name for each in found] == list(QUESTIONS) == [each.name for each in tools()]
    assert all(each.description and each.annotations and each.annotations.read_only_hint for each in found)
    assert all("report" not in each.input_schema["properties"] for each in found)


def test_a_call_is_the_command_with_its_options() -> None:
    given = {**ASKED, "gpus": [1, 2], "as_json": True, "more": {"enable-prefix-caching": False, "max-num-seqs": 64}}
    line = command_line("capacity", given)
    assert line[0] == "capacity" and line[-1] == "--json"
    assert {"--model=llama-3.1-8b", "--gpu=h100-sxm", "--gpus=1,2", "--max-num-seqs=64"} <= set(line)
    assert [word for word in line if "prefix-caching" in word] == ["--no-enable-prefix-caching"]


@pytest.mark.parametrize(
    ("tool", "given", "told"),
    [
        ("capacty", ASKED, "did you mean 'capacity'"),
        ("capacity", {"modle": "llama-3.1-8b"}, "did you mean 'model'"),
        ("capacity", {**ASKED, "more": {"max-num-seq": 3}}, "did you mean 'max-num-seqs'"),
        ("capacity", {**ASKED, "more": [3]}, "more is \\[3\\]; give an object"),
        ("capacity", {**ASKED, "gpus": None}, "gpus is null; give text or a number"),
        ("capacity", {**ASKED, "gpus": True}, "gpus is true; give text or a number"),
        ("capacity", {**ASKED, "more": {"report": "answer.html"}}, "no input of capacity 'report'"),
    ],
)
def test_what_no_command_takes_is_refused(tool: str, given: Mapping[str, object], told: str) -> None:
    with pytest.raises(HeadcountError, match=told):
        command_line(tool, given)


def test_a_value_that_looks_like_an_option_is_a_value() -> None:
    assert "--model=--report=x.html" in command_line("memory", {"model": "--report=x.html"})
    assert command_line("check", {"paths": ["--report=x.html"]})[-2:] == ["--", "--report=x.html"]


def test_an_answer_is_what_the_command_prints(headcount: Callable[..., Any]) -> None:
    told = called("memory", ASKED)
    assert not told.is_error
    assert told.content[0].text == headcount("memory", "--model=llama-3.1-8b", "--gpu=h100-sxm").out.strip()


@pytest.mark.parametrize(
    ("given", "told"),
    [({**ASKED, "gpu": "h100-sxn"}, "did you mean 'h100-sxm'"), ({**ASKED, "user": 3}, "no input of memory 'user'")],
)
def test_an_error_reaches_the_agent_as_one(given: Mapping[str, object], told: str) -> None:
    answer = called("memory", given)
    assert answer.is_error and told in answer.content[0].text
    assert "Traceback" not in answer.content[0].text


def test_a_model_that_does_not_fit_is_an_answer() -> None:
    told = called("memory", {"model": "llama-3.1-70b", "gpu": "l4", "as_json": True})
    assert not told.is_error and json.loads(told.content[0].text)["fits"] is False


def test_catalogs_and_options_are_resources() -> None:
    def read(uri: str) -> Any:
        return json.loads(asked(lambda client: client.read_resource(uri)).contents[0].text)

    listed = [str(each.uri) for each in asked(lambda client: client.list_resources()).resources]
    assert {"headcount://models", "headcount://options/plan"} <= set(listed)
    assert "l40s" in json.dumps(read("headcount://gpus"))
    assert set(read("headcount://options/plan")["properties"]) == {each.name for each in fields_of("plan")}


def test_an_unknown_resource_is_refused() -> None:
    async def refused(client: Client) -> None:
        with pytest.raises(MCPError, match="did you mean 'gpus'"):
            await client.read_resource("headcount://gpsu")

    asked(refused)


def test_the_command_serves_over_standard_input() -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "headcount", "mcp"])
    told = called("memory", {**ASKED, "as_json": True}, server)
    assert json.loads(told.content[0].text)["model"] == "meta-llama/Llama-3.1-8B-Instruct"
