"""A population's file that says only what differs from another."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from files.reading import InputError
from headcount.inputs.slo import SLOInput
from simulator.study.slo import SLO
from workloads.load import load_preset, load_workload, presets_of
from workloads.populations.population import Population
from workloads.traces.trace_file import TraceFile

CHAT = load_preset("chat")
MINE = '[user_tokens]\nkind = "lognormal"\nmedian = 900\nsigma = 1\nsource = "our log"\n'


def population(path: Path) -> Population:
    found = load_workload(path)
    assert isinstance(found, Population)
    return found


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_file_lacks_is_that_of_the_preset_it_extends(tmp_path: Path) -> None:
    mine = population(written(tmp_path, "mine.toml", f'extends = "chat"\n{MINE}'))
    same = {field.name for field in fields(Population) if getattr(mine, field.name) == getattr(CHAT, field.name)}
    assert {"system_prompt_tokens", "turns", "output_tokens", "think_time_s"} <= same
    assert mine.user_tokens.quantile(0.5) == pytest.approx(900)  # type: ignore[arg-type]
    assert mine.name == "mine"
    assert "extends" not in mine.tables


def test_inherited_parts_keep_their_sources(tmp_path: Path) -> None:
    mine = population(written(tmp_path, "mine.toml", f'extends = "chat"\n{MINE}'))
    assert mine.tables["turns"] == CHAT.tables["turns"]
    assert mine.tables["user_tokens"]["source"] == "our log"
    assert "WildChat (Zhao" in mine.source and "user_tokens: our log" in mine.source


def test_settings_of_what_is_retrieved_change_alone(tmp_path: Path) -> None:
    rag = load_preset("rag")
    changed = '[retrieved]\nplace = "before_message"\nin_history = true\n'
    mine = population(written(tmp_path, "mine.toml", f'extends = "rag"\n{changed}'))
    assert rag.retrieved is not None
    assert not rag.retrieved.in_history
    assert mine.retrieved == replace(rag.retrieved, place="before_message", in_history=True)
    assert mine.user_tokens == rag.user_tokens


def test_a_file_may_extend_a_file_that_extends_a_preset(tmp_path: Path) -> None:
    written(tmp_path, "base.toml", f'extends = "Chat"\ntitle = "ours"\n{MINE}')
    more = population(written(tmp_path, "more.toml", 'extends = "base.toml"\nsystem_prompt = 4096\n'))
    assert (more.system_prompt_tokens, more.tables["title"]) == (4096, "ours")
    assert more.tables["user_tokens"]["median"] == 900
    assert more.think_time_s == CHAT.think_time_s


def test_a_population_has_the_slo_of_the_preset_it_extends(tmp_path: Path) -> None:
    rag = SLOInput().found("rag")
    assert (rag.ttft_s, rag.tpot_s) == (2.0, 0.2)
    mine = written(tmp_path, "mine.toml", f'extends = "rag"\n{MINE}')
    more = written(tmp_path, "more.toml", 'extends = "mine.toml"\nsystem_prompt = 4096\n')
    own = written(tmp_path, "own.toml", f'extends = "internal-chat"\n{MINE}')
    for path in (mine, str(more), TraceFile(mine), "RAG"):
        assert SLOInput().found(path) == rag
    assert SLOInput(ttft_s=3.0).found(mine) == SLO(ttft_s=3.0, tpot_s=0.2)
    assert SLOInput(slo="chat").found(mine) == SLOInput().found(own) == SLO()
    assert presets_of(more) == ("rag",)


def test_a_preset_of_ones_own_has_the_slo_of_the_one_it_extends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "presets").mkdir()
    written(tmp_path / "presets", "library-desk.toml", f'extends = "rag"\n{MINE}')
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    assert presets_of("library-desk") == ("library-desk", "rag")
    assert SLOInput().found("library-desk") == SLOInput().found("rag")


def test_a_trace_or_a_population_without_a_preset_has_the_slo_of_chat(tmp_path: Path) -> None:
    trace = written(tmp_path, "rag.csv", "time,prompt,output\n0,10,10\n")
    assert SLOInput().found(trace) == SLOInput().found(None) == SLO()
    assert presets_of(trace) == ()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": 'extends = "a.toml"'}, "a.toml: extends leads back to where it began: a.toml → a.toml; leave out one"),
        ({"a": 'extends = "b.toml"', "b": 'extends = "a.toml"'}, "began: a.toml → b.toml → a.toml; leave out one"),
        (
            {"a": 'extends = "chatt"'},
            "a.toml: extends 'chatt': neither a preset nor a file beside it; did you mean 'ch",
        ),
        ({"a": "extends = 3"}, "a.toml: extends is 3; it must be text"),
        ({"a": 'extends = "chat"\nturn = 3'}, "a.toml: no key 'turn'; did you mean 'turns'?"),
        ({"a": 'extends = "b.toml"', "b": "turns = 2"}, "b.toml: 'system_prompt' is missing; give it"),
    ],
)
def test_a_mistake_in_extends_is_told(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        written(tmp_path, f"{name}.toml", text)
    with pytest.raises(InputError) as caught:
        load_workload(tmp_path / "a.toml")
    assert message in str(caught.value)
