"""How the servers are started that a pasted text may hold."""

import re
from dataclasses import dataclass
from typing import Final

from simulator.engines.engines import SGLANG, VLLM


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a server is started: in a shell's words, or by a module or an image, and how an example of it looks."""

    engine: str
    command: tuple[str, ...]
    module_or_image: re.Pattern[str]
    example: str


VLLM_SERVER: Final = Server(
    engine=VLLM,
    command=("vllm", "serve"),
    module_or_image=re.compile(
        r"^(vllm\.entrypoints\.((openai\.)?api_server|cli\.main)|dynamo\.vllm|\S+/vllm-openai(-\w+)?([:@]\S+)?)$"
    ),
    example="vllm serve MODEL",
)
SGLANG_SERVER: Final = Server(
    engine=SGLANG,
    command=("sglang", "serve"),
    module_or_image=re.compile(
        r"^(sglang\.launch_server|sglang_router\.launch_server|(\S+/)?lmsysorg/sglang([:@]\S+)?)$"
    ),
    example="python -m sglang.launch_server",
)
SERVERS: Final = (VLLM_SERVER, SGLANG_SERVER)
