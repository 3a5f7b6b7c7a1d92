"""Writes docs/cli.md from the settings themselves; ``tests/test_docs_pages.py`` checks that the page is up to date.

Run it after a change of ``config.py``: ``python docs/make_cli_page.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from respserver import settings
from respserver.config import (
    Group,
    HttpClassifierConfig,
    LatencyClassifierConfig,
    RouteConfig,
    TermsClassifierConfig,
)

PAGE = Path(__file__).with_name("cli.md")

HEAD = """\
# The command

<!-- Made by docs/make_cli_page.py; change that or the help texts in respserver/config.py. -->

    respserver [options]
    python -m respserver [options]
    respserver usage [options]

Without options it serves the embedded model on `http://127.0.0.1:8080/v1`, in shipped mode, for this machine only. It
prints the base URL, the mode, and settings to paste for the OpenAI SDKs and for Codex, and it runs until Ctrl-C.

    respserver --port 0 --ready-file ready.json        # a free port; the file says which
    respserver --mode prototype                        # response.done and response.append
    respserver --script demo.toml --tps 1000           # scripted answers, 1,000 tokens a second
    respserver --host 0.0.0.0 --api-keys-file keys.txt # for other machines
    respserver --config respserver.toml                # everything from a file
    respserver --ledger usage.db                       # write down what every turn costs

`respserver usage` prints totals of such a ledger: see [usage.md](usage.md).

## Where settings come from

The command line weighs most, then the environment, then the TOML file, then the defaults. A heavier source replaces the
value of a lighter one as a whole: one `--model` on the command line replaces the file's list.

- **Command line.** A switch takes `on` or `off`; alone it means `on` (`--strict`, `--rehearse off`). An option that may
  be repeated collects its values (`--model a --model b`); of any other, the last one counts. Options cannot be
  abbreviated.
- **Environment.** `RESPSERVER_PORT=8081`. A list is written with commas (`RESPSERVER_MODEL=a,b`); a flag takes one
  value, commas included, and is repeated for more. An empty variable is no setting, and variables that are not in the
  tables below are not looked at. (Kubernetes sets `RESPSERVER_PORT=tcp://…` beside a service that is called
  `respserver`: call it otherwise, or set `enableServiceLinks: false`.)
- **TOML file.** Named by `--config` or `RESPSERVER_CONFIG`. A switch is `true` or `false`. Unknown keys and wrong types
  are errors. File names in it count from its own folder.

```toml
mode = "shipped"
port = 8081
script = "demo.toml"

[limits]
connection_seconds = 600

[[routes]]
pattern = "gpt-*"
engine = "sim"
context_window = 128000

[[classifiers]]
kind = "http"
url = "http://127.0.0.1:9000/screen"
```

A wrong option, variable or key is named, with what was expected; values of `--api-key` are never shown.
"""

ROUTES = """\
### Routes

`[[routes]]` tables stand in the TOML file only; the first match wins. They can be changed while the server runs:
[new settings without a restart](#new-settings-without-a-restart).
"""

CLASSIFIERS = """\
### Classifiers

`[[classifiers]]` tables stand in the TOML file only; each screens the input of every turn (see [safety.md](safety.md)).
"""

TAIL = """\
## Keys

Without keys the server accepts any key and none, and listens beyond loopback only with `--insecure`. With keys, each
request needs `Authorization: Bearer KEY`. Prefer the file or `RESPSERVER_API_KEY`: other users of the machine can see a
command line.

The keys file has one key a line, with the name of its tenant behind it if you like. Empty lines and lines that begin
with `#` do not count. Responses of one tenant do not exist for another; two keys may share a tenant.

```
# keys.txt
k-3f9c0a7d51 alice
k-77b2e0c4aa alice
k-08d1f6b93e
```

A key without a name is a tenant of its own, shown in logs as `key-` and the beginning of the key's SHA-256 digest.

## Ready file

Written in one piece once connections are accepted, and removed at the end:

```json
{"base_url": "http://127.0.0.1:40123/v1", "ws_url": "ws://127.0.0.1:40123/v1/responses", "host": "127.0.0.1",
 "port": 40123, "mode": "shipped", "pid": 4711, "version": "0.1.0"}
```

## New settings without a restart

    kill -HUP PID

SIGHUP has the server read its settings again, from all their sources, and take these anew:

- **The routing table**: `routes`, `model`, `strict_models`. Every turn that begins is routed by the new one, on open
  connections too. A turn that runs, or is suspended at a tool call, keeps its route.
- **The keys**: `api_key`, `api_keys_file` and its lines. Requests and new sockets need a key that stands there now. An
  open socket keeps the tenant that it came with, until it is closed or `--connection-seconds` are over.
- **The rate limits**: `requests_per_minute`, `tokens_per_minute`. They hold at once; what was used stays used.

All else needs a restart: the log names what differs (`restart_needed`). Engines stay as they are, so a chain whose
model still goes to the same engine goes on from what the engine has of it.

If anything is wrong, nothing is changed: the log has a line `reload_failed` with the file, the key and what was
expected, and the server goes on with its old settings. A server that asks for keys is never opened by a reload: without
any keys left, the new settings are refused.

## Signals and exit codes

The first SIGINT (Ctrl-C) or SIGTERM ends the server in order: no new connections, running turns get `--grace-seconds`.
A second SIGINT ends it at once. SIGHUP reloads, as above; but if it comes because the terminal that the server was
started in was closed, the server ends in order, unless it was started with `nohup`.

| code | meaning |
| --- | --- |
| 0 | ended by a signal, or `--help`, `--version` |
| 1 | the address could not be taken (the message says why), or the server broke (the log says how) |
| 2 | an option, variable, settings file, keys file, script or certificate is wrong; the message names it |
| 130 | Ctrl-C before the server ran |

## Logs

Log lines go to standard error, the banner to standard output. There is one line a turn, with ids, transport, token
counts, [stage timings](timings.md) and, as `unknown`, names of fields that the API does not have; that of a refused
turn has the code and, as `param`, where the fault is. A request that is refused before a turn has a line `refused` with
status, code, method and path. `--log-format json` writes one object a line; times are UTC. On a terminal `text` lines
are short: local times, ids cut, no stages, nothing that is zero. What goes into a file or a pipe is complete. Lines
never hold a key, what was asked or answered, or `x-codex-turn-metadata`; control characters are escaped, so that a
client cannot forge a line. Other libraries' lines are shown from `info` upwards, whatever the level.
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD, "## Options\n"]
    parts.append(
        "`--help` shows them and exits, `--version` shows the version, `--config FILE` names a settings file.\n"
    )
    parts += [f"### {group}\n\n{_table(group)}" for group in Group]
    parts += [ROUTES, _keys(RouteConfig), CLASSIFIERS]
    for kind in (TermsClassifierConfig, HttpClassifierConfig, LatencyClassifierConfig):
        parts.append(f'`kind = "{kind.__struct_config__.tag}"`\n\n{_keys(kind)}')
    return "\n".join([*parts, TAIL])


def _table(group: Group) -> str:
    lines = ["| option | TOML key | environment | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for option in settings.OPTIONS:
        if option.group is group:
            value = f"[{option.metavar}]" if option.is_switch else option.metavar
            names = f"`{option.flag} {_cell(value)}` | `{option.key}` | `{option.variable}`"
            lines.append(f"| {names} | {_code(option.default_text)} | {_cell(option.help)}{_bounds(option.bounds)} |")
    return "\n".join(lines) + "\n"


def _bounds(metas: Sequence[msgspec.Meta]) -> str:
    """The least value of a number, where it is not 0: what 0 means is said by the option."""
    least = max((meta.ge for meta in metas if meta.ge is not None), default=0)
    return f" At least {least}." if least else " More than 0." if any(meta.gt == 0 for meta in metas) else ""


def _keys(table: type[msgspec.Struct]) -> str:
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for field in msgspec.structs.fields(table):
        meaning = next(mark.description for mark in get_args(field.type) if getattr(mark, "description", None))
        default = "" if field.default is msgspec.NODEFAULT else str(field.default)
        default = default.lower() if isinstance(field.default, bool) else default  # as TOML has it
        lines.append(f"| `{field.name}` | {_code(default)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
