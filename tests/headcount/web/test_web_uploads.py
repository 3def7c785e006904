"""Files that people upload."""

import io
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from files.reading import InputError, read_text, reads_confined_to
from headcount.web.scenario import read_scenario
from headcount.web.uploads import Uploads, safe_name
from headcount.web.worker import Refused, _answered
from tests.headcount.web.conftest import scenario


def test_an_upload_is_named_by_its_content_and_its_own_name(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    name = uploads.keep("../../my trace.csv", io.BytesIO(b"a,b\n"))
    assert name == uploads.keep("my trace.csv", io.BytesIO(b"a,b\n"))
    asked = scenario(workload=name)
    assert "--workload=./my_trace.csv" in asked.words
    with uploads.folder_of(asked) as folder:
        assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("my_trace.csv", b"a,b\n")]
    assert not folder.exists()


@pytest.mark.parametrize(
    "given",
    ["../../etc/passwd", "C:\\x\\y", ".bashrc", "-rf", "a" * 300 + ".csv", "<script>.csv", "", "日本.csv", "\0"],
)
def test_the_name_of_an_upload_is_a_plain_one(given: str) -> None:
    name = safe_name(given)
    assert 0 < len(name) <= 90 and not name.startswith((".", "-")) and not set(name) & set("/\\<>\0 ")


def test_an_upload_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    asked = scenario(workload=f"upload:{'0' * 32}/mine.csv")
    with pytest.raises(ValueError, match="choose the file again"), Uploads(tmp_path).folder_of(asked):
        pass


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two different files are called a"):
        scenario(workload=f"upload:{'0' * 32}/a", startup_log=f"upload:{'1' * 32}/a")


def test_a_file_that_is_too_large_is_refused_however_its_size_is_told(page: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file.workload"; filename="a"\r\n\r\n'
        yield from [b"0" * 50_000] * 4

    form = {"content-type": "multipart/form-data; boundary=x"}
    assert page.post("/capacity", content=pieces(), headers=form).status_code == 413
    assert page.post("/capacity", files={"file.workload": ("a", b"0" * 200_000)}).status_code == 413
    assert page.get("/").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"garbage", 400),
        (b"--x\r\n\r\n", 400),
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n', 303),  # a field that never comes: nothing was given
    ],
)
def test_a_malformed_form_is_refused_or_empty(page: TestClient, body: bytes, status: int) -> None:
    found = page.post("/capacity", content=body, headers={"content-type": "multipart/form-data; boundary=x"})
    assert found.status_code == status
    assert page.get("/").status_code == 200


def test_a_full_disk_is_told(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Uploads, "keep", full)
    found = page.post("/capacity", files={"file.workload": ("a", b"0")})
    assert found.status_code == 507 and "No space left on device" in found.text


def test_an_uploaded_file_is_named_in_the_link(page: TestClient) -> None:
    found = page.post("/capacity", data={"model": "llama-3.1-8b"}, files={"file.workload": ("t.csv", b"a,b")})
    assert found.status_code == 303
    assert "workload=upload%3A" in found.headers["location"]
    assert "t.csv" in page.get(found.headers["location"]).text


def test_confined_reads_stay_in_their_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out.txt"
    inside.mkdir()
    (inside / "a.txt").write_text("mine")
    outside.write_text("secret")
    (inside / "link.txt").symlink_to(outside)
    with reads_confined_to(inside):
        assert read_text(inside / "a.txt") == "mine"
        for path in (outside, inside / "link.txt", inside / ".." / "out.txt", tmp_path / "none"):
            with pytest.raises(InputError, match="may be read here"):
                read_text(path)
    assert read_text(outside) == "secret"


SPECULATION = '{{"method": "eagle", "model": "{path}", "num_speculative_tokens": 2}}'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm-args", "vllm serve {path}"),
        ("vllm-args", f"vllm serve llama-3.1-8b --speculative-config '{SPECULATION}'"),
        ("workload", f"upload:{'0' * 32}/a.toml"),  # which extends {path}
    ],
)
@pytest.mark.parametrize("way", ["{file}", "{folder}/../../..{here}", "~{file}", "{file}/config.json"])
def test_an_answer_does_not_tell_which_files_the_server_has(
    name: str, value: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file or a folder that is there and one that is not, the page says the same but for the name."""
    monkeypatch.chdir(tmp_path)
    told = []
    for file, folder in (("/etc/passwd", "/usr/lib/ssl"), ("/etc/nobody", "/usr/lib/no")):
        path = way.format(file=file, folder=folder, here=f"{tmp_path}/a.toml")
        (tmp_path / "a.toml").write_text(f'extends = "{path}"\n')
        given = {name: value.format(path=path), "gpu": "h100-sxm"}
        given = given if name == "vllm-args" else {**given, "model": "llama-3.1-8b"}
        question = "memory" if name == "vllm-args" else "capacity"
        asked = read_scenario(question, list(given.items()))
        answer = _answered(asked, tmp_path, Pipe()[0])
        assert isinstance(answer, Refused) and not answer.is_fault
        told.append(answer.why.replace(path, "PATH"))
    assert told[0] == told[1]


def test_a_serve_line_may_be_a_file_that_was_uploaded_and_no_other(page: TestClient) -> None:
    text = b"vllm serve Qwen/Qwen3-8B --max-model-len 16384"
    sent = page.post("/memory", data={"gpu": "h100-sxm"}, files={"file.vllm-args": ("serve.sh", text)})
    assert sent.status_code == 303
    assert "serve.sh" in sent.headers["location"]
    for path in ("/etc/hosts", "../secret.sh", "@/etc/passwd", "~/compose.yaml"):
        refused = page.post("/memory", data={"gpu": "h100-sxm", "vllm-args": path})
        assert refused.status_code == 400, path
        assert "is a path, which the page does not read" in refused.text
    pasted = page.post("/memory", data={"gpu": "h100-sxm", "vllm-args": "vllm serve /models/Qwen3-8B --port 8000"})
    assert pasted.status_code == 303
