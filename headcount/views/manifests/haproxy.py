"""HAProxy before several servers, configured as the plan's text recommends."""

from collections.abc import Sequence
from typing import Final

from files.errors import HeadcountError
from headcount.text.words import HAPROXY_LINES
from headcount.views.manifests.fleet import PORT, DeployedFleet

IMAGE: Final = "haproxy:3.2"  # a release with long-term support
HEALTH_PORT: Final = 8404
FOLDER: Final = "/usr/local/etc/haproxy"  # where the image reads it
_STICK_TABLE: Final = "stick-table type string len 128 size 1m expire 24h"  # sessions; a day without turns ends one

_TEMPLATE: Final = """\
{title}
# router: {router}{header}
global
  log stdout format raw local0 info
  maxconn 20000

defaults
  mode http
  log global
  option httplog
  timeout connect 5s
  timeout client 1h
  timeout server 1h

resolvers names
  parse-resolv-conf
  accepted_payload_size 8192
  hold valid 5s

frontend openai
  bind :{port}
  default_backend engines

frontend health
  bind :{health_port}
  monitor-uri /health

backend engines
  {lines}
  option httpchk GET /health
  option redispatch
  default-server check inter 5s resolvers names init-addr {first_address}
  {servers}
"""


def check_haproxy(router: str | None, format: str) -> None:
    """Raise HeadcountError for a router that is not HAProxy's."""
    if router is not None and router not in HAPROXY_LINES:
        known = " or ".join(HAPROXY_LINES)
        raise HeadcountError(
            f"--format {format} writes HAProxy, which does not route as {router} does; plan with --router {known}, or "
            "choose a format that has this router: docs/how-to/deploy-a-plan.md"
        )


def config(fleet: DeployedFleet, servers: Sequence[str], *, first_address: str = "libc,none") -> str:
    """haproxy.cfg before these servers, each a line of a backend."""
    lines = list(HAPROXY_LINES[fleet.router or ""])
    header = ""
    if any(line.startswith("stick on") for line in lines):
        lines.insert(1, _STICK_TABLE)
        header = ". Clients send the name of their session in the header x-session-id."
    return _TEMPLATE.format(
        title=fleet.title, router=fleet.router, header=header, port=PORT, health_port=HEALTH_PORT,
        lines="\n  ".join(lines), servers="\n  ".join(servers), first_address=first_address,
    )  # fmt: skip
