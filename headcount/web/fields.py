"""The fields of a question's form, made from the options of its command."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import click

from files.names import check_names
from headcount.cli.main import cli
from headcount.cli.option_types import Reads
from headcount.inputs.out_path import OutPath
from kvcache.models.catalog import gpu_names, model_names, quantization_names
from simulator.engines.engines import ENGINES
from simulator.engines.values import FilePath, Kind, Listed, Text
from simulator.fleet.router import router_names
from simulator.study import slo
from workloads.load import preset_names

QUESTIONS: Final = {  # a command's words by the question's name in a link
    "plan": ("plan",),
    "capacity": ("capacity",),
    "compare": ("compare",),
    "whatif": ("whatif",),
    "simulate": ("simulate",),
    "memory": ("memory",),
    "check": ("calibrate", "check"),
}
TITLES: Final = {  # as people ask
    "plan": "Which GPUs do my users need?",
    "capacity": "How many users do my GPUs serve?",
    "compare": "Which GPU or setting is best?",
    "whatif": "What if context, users or settings change?",
    "simulate": "What do so many users see?",
    "memory": "Does the model fit?",
    "check": "Is my server as fast as expected?",
}
_FIRST: Final = (  # what people are asked for; the rest stands behind "more", under the headings of --help
    "paths", "model", "users", "employees", "gpu", "gpus", "replicas", "vary", "workload", "price", "quantization",
    "kv_cache_dtype", "engine", "traffic", "concurrency", "rate", "input_len", "output_len", "num_requests",
    "mean_context", "ttft_s", "tpot_s", "growth", "spare", "vllm_args", "sglang_args", "startup_log",
)  # fmt: skip
_LABELS: Final = {
    "users": "users at the peak",
    "gpus": "number of GPUs",
    "price": "price of a GPU's hour",
    "quantization": "number format of the weights",
    "kv-cache-dtype": "number format of the KV cache",
    "ttft": "limit on TTFT",
    "tpot": "limit on TPOT",
    "spare": "spare servers",
    "vllm-args": "your vllm serve line",
    "sglang-args": "your SGLang launch line",
}
_OPTION = re.compile(r"--([a-z][a-z-]+)\b(?! value)")
_COMMAND = re.compile(r"\s*(\(see|See) 'headcount [^']*'[.)]")
_NOT_ASKED: Final = (
    "no_store",
    "executor",
    "workers",
    "as_json",
    "json_schema",
    "manifest_formats",
    "config",
    "limit",
    "debug",
    "lifts",
)  # the server decides
_NAMES: Final[dict[str, Callable[[], Sequence[str]]]] = {
    "model": model_names,
    "gpu": gpu_names,
    "engine": lambda: tuple(ENGINES),
    "workload": preset_names,
    "quantization": quantization_names,
    "router": router_names,
    "slo": lambda: tuple(slo.PRESETS),
}
_SPELLED: Final = {word.lower(): word for word in ("GPU", "GPUs", "SLO", "TTFT", "TPOT", "KV", "API", "vLLM", "SGLang")}
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


@dataclass(frozen=True)
class Field:
    """An option, or the files of a command, as a form shows it and a link names it."""

    parameter: click.Parameter

    @property
    def name(self) -> str:
        """In links: the long flag without dashes in front."""
        return max(self.parameter.opts, key=len).lstrip("-").replace("_", "-")

    @property
    def label(self) -> str:
        return _label_of(self.name)

    @property
    def kind(self) -> Kind | None:
        found = self.parameter.type.kind if isinstance(self.parameter.type, Reads) else None
        return found.each if isinstance(found, Listed) else found

    @property
    def heading(self) -> str:
        return str(vars(self.parameter).get("heading", "Other"))

    @property
    def is_first(self) -> bool:
        return self.parameter.name in _FIRST

    @property
    def is_switch(self) -> bool:
        return isinstance(self.parameter, click.Option) and self.parameter.is_flag

    @property
    def is_file(self) -> bool:
        """Whether it is read from a file alone, which the user uploads."""
        return isinstance(self.kind, FilePath)

    @property
    def may_be_file(self) -> bool:
        """Whether it is a name, or a file that the user uploads."""
        return isinstance(self.kind, Text) and self.kind.may_be_path

    def runs_code(self, value: str) -> bool:
        """Whether the value names code that would be run."""
        return isinstance(self.kind, Text) and self.kind.runs_code(value)

    @property
    def is_many(self) -> bool:
        """Whether it may be given several times."""
        return self.parameter.nargs == -1 or self.parameter.multiple

    @property
    def is_required(self) -> bool:
        return self.parameter.required

    @property
    def help(self) -> str:
        return _without_options(_COMMAND.sub("", _DEFAULT.sub("", self._help)))

    @property
    def default(self) -> str:
        """What holds where nothing is given, as the help says it."""
        if found := _DEFAULT.search(self._help):
            return _without_options(found[1])
        given = self.parameter.default
        if isinstance(given, bool) or (self.is_switch and not self.parameter.secondary_opts):
            return "on" if given is True else "off"
        return str(given) if isinstance(given, str | int | float) and not self.is_required else ""

    @property
    def suggestions(self) -> Sequence[str]:
        """Names that are known."""
        return _known(str(self.parameter.name))

    @property
    def _help(self) -> str:
        return getattr(self.parameter, "help", None) or "Results of benchmark clients, or /metrics snapshots."


def _label_of(name: str) -> str:
    return _LABELS.get(name) or " ".join(_SPELLED.get(word, word) for word in name.split("-"))


def _without_options(text: str) -> str:
    """With the labels of fields instead of the options that the command line has."""
    return _OPTION.sub(lambda option: _label_of(option[1]), text)


@cache
def _known(name: str) -> Sequence[str]:
    """Looked for once: the models alone are a hundred files."""
    return _NAMES.get(name, tuple)()


def command_of(question: str) -> click.Command:
    """Raises UnknownNameError for what is no question of the page."""
    check_names([question], QUESTIONS, "question")
    found: click.Command = cli
    for word in QUESTIONS[question]:
        assert isinstance(found, click.Group)
        inside = found.get_command(click.Context(found), word)
        assert inside is not None, f"no command {word}"
        found = inside
    return found


@cache
def fields_of(question: str) -> tuple[Field, ...]:
    """Every field, in the order of the form: first what people are asked for."""
    return fields_in(command_of(question))


def fields_in(command: click.Command) -> tuple[Field, ...]:
    """The same of any command."""
    found = [Field(each) for each in command.params if _is_asked(each)]
    first = sorted((each for each in found if each.is_first), key=lambda each: _FIRST.index(str(each.parameter.name)))
    return (*first, *(each for each in found if not each.is_first))


def _is_asked(parameter: click.Parameter) -> bool:
    is_out = isinstance(parameter.type, Reads) and isinstance(parameter.type.kind, OutPath)
    return not is_out and parameter.name not in _NOT_ASKED and not getattr(parameter, "hidden", False)
