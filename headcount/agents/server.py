"""The questions as tools of an agent, and the catalogs as its resources, by the Model Context Protocol.

A tool is a command of the command line: its options are the tool's inputs, and its answer, or its error, is what the
command prints. Each call runs in a process of its own, which ends with it where the client cancels.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from files.documents import Json
from files.errors import HeadcountError
from files.names import check_names
from headcount.cli.main import FAULT
from headcount.version import __version__
from headcount.web.fields import QUESTIONS, TITLES, Field, command_of, fields_of
from headcount.web.schemas import options_schema, shown, texts_of

AS_JSON, MORE = "as_json", "more"  # inputs beside the options
_ABOUT_JSON: Final = "One JSON object instead of the text for people."
_ABOUT_MORE: Final = "Any other option by its name. The resource headcount://options/{} describes them all."
_REFUSED: Final = (2, 4, FAULT)  # bad input, a diagnostic that --strict refuses, a fault
_OPTIONS: Final = "options/"
_CATALOGS: Final[Mapping[str, tuple[str, ...]]] = {
    "models": ("models", "--json"),
    "gpus": ("gpus", "--json"),
    "workloads": ("workload", "list", "--json"),
}
_ABOUT_CATALOGS: Final = {
    "models": "Models known by name, with their sources.",
    "gpus": "GPUs known by name, with memory, speed, prices and sources.",
    "workloads": "Workloads known by name, each with its SLO and sources.",
}
INSTRUCTIONS: Final = (
    "Headcount simulates vLLM and SGLang servers: how many people GPUs serve at once, and how many GPUs people need. "
    "Numbers to plan with are users at 95 % confidence. A question takes seconds to minutes."
)


def tools() -> list[types.Tool]:
    """One for each question."""
    return [
        types.Tool(
            name=question,
            title=TITLES[question],
            description=f"{TITLES[question]} {_summary(question)}",
            input_schema=input_schema(question),
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for question in QUESTIONS
    ]


def _summary(question: str) -> str:
    return (command_of(question).help or "").split("\n\n")[0].replace("\n", " ")


def input_schema(question: str) -> Json:
    """A JSON schema of what people are asked for first: all options of all tools were a hundred kilobytes."""
    asked = [field for field in fields_of(question) if field.is_first or field.is_required]
    found = options_schema(asked)
    found["properties"][MORE] = {"type": "object", "description": _ABOUT_MORE.format(question)}
    found["properties"][AS_JSON] = {"type": "boolean", "description": _ABOUT_JSON, "default": False}
    return found


def command_line(question: str, given: Mapping[str, object]) -> list[str]:
    """What is run for a call. Raises UnknownNameError for an unknown question or option, HeadcountError for a value."""
    check_names([question], QUESTIONS, "tool")
    known, more = {field.name: field for field in fields_of(question)}, given.get(MORE, {})
    if not isinstance(more, dict):
        raise HeadcountError(f"{MORE} is {shown(more)}; give an object of options by name")
    asked = {name: value for name, value in given.items() if name not in (AS_JSON, MORE)} | more
    check_names(asked, known, f"input of {question}")
    files = {name for name in asked if known[name].parameter.param_type_name == "argument"}
    options = [word for name, value in asked.items() if name not in files for word in _options(known[name], value)]
    paths = [path for name in asked if name in files for path in texts_of(known[name], asked[name])]
    return [
        *QUESTIONS[question],
        *options,
        *(["--json"] if given.get(AS_JSON) else []),
        *(["--", *paths] if paths else []),
    ]


def _options(field: Field, value: object) -> Iterator[str]:
    if field.is_switch:
        if not isinstance(value, bool):
            raise HeadcountError(f"{field.name} is {shown(value)}; give true or false")
        named = field.parameter.opts if value else field.parameter.secondary_opts
        yield from [max(named, key=len)] if named else []
        return
    values = texts_of(field, value)
    yield from (f"--{field.name}={each}" for each in (values if field.is_many else [",".join(values)]))


async def run(words: Sequence[str]) -> tuple[bool, str]:
    """What a command printed, and whether that is an error: with --json, a model that does not fit is an answer."""
    done = await anyio.run_process(
        [sys.executable, "-m", "headcount", *words], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    is_error = done.returncode in _REFUSED and not done.stdout
    return is_error, (done.stderr if is_error else done.stdout).decode(errors="replace").strip()


async def _list_tools(_: ServerRequestContext[Any], __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=tools())


async def _call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        is_error, told = await run(command_line(params.name, params.arguments or {}))
    except HeadcountError as error:
        is_error, told = True, f"headcount: {error}"
    return types.CallToolResult(content=[types.TextContent(text=told)], is_error=is_error)


async def _list_resources(
    _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    about = dict(_ABOUT_CATALOGS)
    about |= {f"{_OPTIONS}{question}": f"A JSON schema of all options of {question}." for question in QUESTIONS}
    found = [
        types.Resource(name=name, uri=f"headcount://{name}", description=text, mime_type="application/json")
        for name, text in about.items()
    ]
    return types.ListResourcesResult(resources=found)


async def _read_resource(
    __: ServerRequestContext[Any], params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    name = params.uri.removeprefix("headcount://")
    question = name.removeprefix(_OPTIONS)
    if name.startswith(_OPTIONS) and question in QUESTIONS:
        text = json.dumps(options_schema(fields_of(question)))
    else:
        try:
            check_names([name], _CATALOGS, "resource")
        except HeadcountError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        _, text = await run(_CATALOGS[name])
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=params.uri, mime_type="application/json", text=text)]
    )


def make_server() -> Server[Any]:
    """The server, whatever it speaks over."""
    return Server(
        "headcount",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )


async def serve() -> None:
    """Answer over standard input and output until the client leaves."""
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
