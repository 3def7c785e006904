"""The words of a server's command in a compose file, a Kubernetes manifest or the values of a chart."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import dedent

from files.documents import Json, parse_yaml
from files.errors import HeadcountError
from files.warn_once import warn_once
from headcount.cli.engine_command_parser.charts import CHARTS
from headcount.cli.engine_command_parser.variables import names_used, with_values
from simulator.engines.vllm.environment import VARIABLE

_MANIFEST = re.compile(r"^\s*(\[|-\s+['\"]?-)|^\s*-?\s*(command|args|image)\s*:|^[A-Za-z]\w*:\s*$", re.MULTILINE)
_DOCUMENTS = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_USE = re.compile(r"\$\((\w+)\)")  # Kubernetes' own way to use a variable
_MODEL = re.compile(r"^--model(-path)?(=|$)")
_KSERVE = {"model-id": "--model", "model-name": "--served-model-name"}  # of KServe's huggingfaceserver
_OTHERS = ("sh", "bash", "sleep", "tail")

Words = list[str]


def manifest_words(
    text: str, option: str, starts: Callable[[Sequence[str]], bool], of_script: Callable[[str], Words]
) -> Words | None:
    """The words of the first container that starts the server, or of its flags alone; None where it is no manifest.

    A text may hold several YAML documents. Where it holds other servers, a warning says that they are not answered.
    Raises HeadcountError where it starts none.
    """
    if not _MANIFEST.search(text):
        return None
    try:
        documents = [parse_yaml(part, "the text") for part in _DOCUMENTS.split(dedent(text.strip("\n")))]
    except ValueError:
        return None
    if not any(isinstance(document, dict | list) for document in documents):
        return None
    commands = [words for document in documents for words in _commands(document, of_script)]
    commands = [words for words in commands if starts(words)] or [words for words in commands if _is_flags(words)]
    if not commands:
        raise HeadcountError(f"{option} is empty; paste a text with a command that starts the server")
    different = {tuple(words) for words in commands}
    if len(different) > 1:
        warn_once(f"{option}: the text starts {len(different)} different servers; this answers for the first")
    replicas = max((count for document in documents for count in _replicas(document)), default=1)
    if replicas > 1:
        warn_once(
            f"{option}: the text runs {replicas:,} replicas; this reads one server's settings. Give the GPUs of all of "
            "them (--gpus) where the question takes them"
        )
    return commands[0]


def _replicas(value: object) -> Iterator[int]:
    """How many servers each part asks for."""
    if isinstance(value, dict):
        yield from (value[name] for name in ("replicas", "replicaCount") if type(value.get(name)) is int)
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from _replicas(each)


def _is_flags(words: Sequence[str]) -> bool:
    """Flags alone, or those of an image that is not known, if they name the model."""
    behind = [word for word in words if not VARIABLE.match(word)]
    return behind[0].startswith("-") or any(_MODEL.match(word) for word in behind[1:])


def _commands(document: object, of_script: Callable[[str], Words]) -> Iterator[Words]:
    if isinstance(document, list) and all(isinstance(each, str | int | float) for each in document):
        document = {"args": document}
    for found in _objects(document):
        chart = next((words_of for keys, words_of in CHARTS.items() if keys <= found.keys()), None)
        variables = _variables(found.get("env") or found.get("environment"))
        values = {name: value for name, given, value in (each.partition("=") for each in variables) if given}
        image = [with_values(_image(found["image"]), values)] if "image" in found else []
        words = chart(found) if chart is not None else _container_words(found, of_script, values)
        if words and words[0].rsplit("/", 1)[-1] in _OTHERS:  # instead of what the image starts
            image = []
        if words:
            used = _used(found)
            yield [*(each for each in variables if each.partition("=")[0] not in used), *image, *words]


def _image(value: object) -> str:
    """Its name with its tag, which values of charts hold apart."""
    if not isinstance(value, dict):
        return str(value)
    parts = [str(value[key]) for key in ("registry", "repository") if value.get(key)]
    return f"{'/'.join(parts)}:{value.get('tag') or 'latest'}"


def _container_words(container: Json, of_script: Callable[[str], Words], values: Mapping[str, str]) -> Words:
    words: Words = []
    for key in ("command", "args", "extraArgs"):
        value = container.get(key)
        listed = value if isinstance(value, list) else []
        words += (
            shlex.split(_with_values(value, values))
            if isinstance(value, str)
            else [word for each in listed for word in _parts(each, of_script, values)]
        )
    return _of_kserve(words, container) if _names_for_kserve(words, container) else words


def _names_for_kserve(words: Sequence[str], container: Json) -> bool:
    names = {word.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    return "model-id" in names or ("model-name" in names and "storageUri" in container)


def _of_kserve(words: Sequence[str], container: Json) -> Words:
    """Under vLLM's names; the backend is taken to be vLLM, which is huggingfaceserver's default for what it serves."""
    found: Words = []
    is_backend = False
    for word in words:
        flag, is_joined, value = word.partition("=")
        name = flag.lstrip("-").replace("_", "-") if flag.startswith("--") else ""
        if name != "backend" and not (is_backend and not name):
            found.append(f"{_KSERVE.get(name, flag)}{is_joined}{value}")
        is_backend = name == "backend" and not is_joined
    uri = str(container.get("storageUri", ""))
    has_model = any(_MODEL.match(word) for word in found)
    return found if has_model or not uri else ["--model", uri.removeprefix("hf://"), *found]


def _used(container: Json) -> set[str]:
    """The variables that a container's own words use."""
    text = json.dumps([container.get(key) for key in ("command", "args", "extraArgs")])
    return names_used(text) | set(_USE.findall(text))


def _with_values(text: str, values: Mapping[str, str]) -> str:
    return with_values(_USE.sub(lambda found: values.get(found[1], found[0]), text), values)


def _objects(value: object) -> Iterator[Json]:
    """Every mapping that may start a server, from the outside in, and none inside of one."""
    if isinstance(value, dict):
        has_more = "image" in value and isinstance(value.get("extraArgs"), str | list)
        if has_more or value.keys() & {"command", "args"} or any(keys <= value.keys() for keys in CHARTS):
            yield value
            return
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from _objects(each)


def _parts(value: object, of_script: Callable[[str], Words], values: Mapping[str, str]) -> Words:
    """A word, or the words of a command that a shell is given."""
    text = str(value).lower() if isinstance(value, bool) else _with_values(str(value), values)
    return of_script(text) if re.search(r"\s--?\w", text) else [text]


def _variables(value: object) -> Words:
    if isinstance(value, dict):
        return [f"{name}={_or_empty(each)}" for name, each in value.items()]
    listed = value if isinstance(value, list) else []
    return [
        f"{each.get('name')}={_or_empty(each.get('value'))}" if isinstance(each, dict) else str(each) for each in listed
    ]


def _or_empty(value: object) -> str:
    return "" if value is None else str(value)
