"""The words of a server's command, from a shell line, a script, a compose file or a Kubernetes manifest."""

import re
import shlex
from collections.abc import Iterator, Sequence

from files.errors import HeadcountError
from files.names import shortened
from headcount.cli.engine_command_parser.manifests import manifest_words
from headcount.cli.engine_command_parser.servers import SERVERS, Server
from headcount.cli.engine_command_parser.variables import expanded
from simulator.engines.flags import TITLES
from simulator.engines.vllm.environment import VARIABLE

_COMMENT = re.compile(r"(^|(?<=\s))#(\s.*|!.*)?$", re.MULTILINE)
_TOKEN = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\n|[^'\"\\\n]+|['\"\\]", re.DOTALL)
_FLAG_AND_VALUE = re.compile(r"^--[\w-]+[ \t]+[^\s-]\S*$")
_CONTINUED = re.compile(r"(?<=\s)[\^`][ \t\r]*(?:\n|\Z)")  # a line that goes on, in Windows' shells
_PLAIN_WORD = re.compile(r"[^\s\"'\[\],]+")
_LOG = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|"
    r"\bnon-default args: \{|\bserver_args=ServerArgs\(|\b(?:GPU|CPU) KV cache size: ",
    re.MULTILINE,
)
_ENDS = re.compile(r"^(&&?|\|\|?|;|\d?>.*)$")  # what a shell reads as the command's end


def variables_and_words(text: str, option: str, server: Server) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables in front of the server's command, and the words behind it.

    Without a command all words count as behind it. Raises HeadcountError where nothing is.
    """
    text = _CONTINUED.sub(" ", text)
    _refuse_foreign(text, option, server)
    try:
        words = manifest_words(
            text,
            option,
            lambda found: _start(found, server) is not None,
            lambda script: _shell_words(expanded(script), server),
        )
        words = _shell_words(expanded(text), server) if words is None else words
    except HeadcountError:
        raise
    except ValueError:  # of shlex
        raise HeadcountError(f"{option}: a quote is left open in '{shortened(text)}'; close it") from None
    start = _start(words, server)
    first = next((place for place, word in enumerate(words) if not VARIABLE.match(word)), len(words))
    head = words[: first if start is None else start[0]]  # docker's own words hold variables behind -e
    behind = words[first if start is None else start[1] :]
    if start is not None and behind[:1] == [server.command[-1]]:  # the image's own command, said again
        behind = behind[1:]
    ends = next((place for place, word in enumerate(behind) if _ENDS.match(word)), len(behind))
    behind = [part for word in behind[:ends] for part in _apart(word)]
    if not behind:
        raise HeadcountError(f"{option} is empty; paste a '{server.example} --flag value …' line, or leave it out")
    found = [word.removeprefix("--env=") for word in head]
    return tuple(word for word in found if VARIABLE.match(word)), behind


def _refuse_foreign(text: str, option: str, server: Server) -> None:
    """Raise HeadcountError for a log, or a line of another engine alone, with the option that reads it."""
    words = _PLAIN_WORD.findall(text)
    if _start(words, server) is not None:
        return
    if _LOG.search(text):
        raise HeadcountError(f"{option}: this is a server's log; save it as a file, and give that as --startup-log")
    other = next((each for each in SERVERS if _start(words, each) is not None), None)
    if other is not None:
        raise HeadcountError(
            f"{option}: this starts {TITLES[other.engine]}, not {TITLES[server.engine]}; give it as "
            f"--{other.engine}-args"
        )


def _apart(word: str) -> list[str]:
    """A flag and its value that stand in one word, as lists in YAML hold them; nothing for what stands for more."""
    if word in ("...", "…"):
        return []
    return word.split(None, 1) if _FLAG_AND_VALUE.match(word) else [word]


def _start(words: Sequence[str], server: Server) -> tuple[int, int] | None:
    """Where the server's command begins, and where its words do; the last of several ways to say it counts."""
    found = None
    size = len(server.command)
    for place, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == server.command[0] and (*words[place + 1 : place + size],) == server.command[1:]:
            return (found[0] if found else place), place + size
        if server.module_or_image.match(word) and found is None:
            found = place, place + 1
        elif found is not None and server.module_or_image.match(word) and word.count("/") == 0:
            found = found[0], place + 1
    return found


def _shell_words(text: str, server: Server) -> list[str]:
    """Those of the server's own line, with variables that lines before it set; all words where no line starts one."""
    lines = [_unwrapped(shlex.split(line), server) for line in _lines(_COMMENT.sub("", text))]
    starts = next((place for place, line in enumerate(lines) if _start(line, server)), None)
    if starts is None:
        return [word for line in lines for word in line]
    return [word for line in lines[:starts] for word in line if VARIABLE.match(word)] + lines[starts]


def _lines(text: str) -> Iterator[str]:
    """Commands: lines that end in a backslash, in a quote, or before a flag, go on."""
    command = ""
    tokens = [match[0] for match in _TOKEN.finditer(re.sub(r"\\[ \t]*\n", " ", text))]
    for place, token in enumerate(tokens):
        rest = "".join(tokens[place + 1 : place + 2]).lstrip()
        if token == "\n" and command.strip() and not rest.startswith("-"):
            yield command
            command = ""
        else:
            command += " " if token == "\n" else token
    if command.strip():
        yield command


def _unwrapped(words: list[str], server: Server) -> list[str]:
    """With the words of a command that stands in quotes, as behind `bash -c`."""
    inner = next((word for word in words if " " in word.strip() and _start(word.split(), server)), None)
    return words if inner is None else [*words[: words.index(inner)], *shlex.split(inner.replace("\\\n", " "))]
