#!/usr/bin/env bash
# Runs a Codex CLI of early 2026, which speaks response.create / response.done / response.append over WebSocket, against
# a server in prototype mode and judges what it did: end to end, with a client that others wrote.
#
#   codex_prototype_e2e.sh [options] http://127.0.0.1 PORT
#
#   --dir DIR          where Codex is, or is put to (64 MB and more)
#                      (default: respserver/codex-prototype in the user's cache folder)
#   --version V        0.89.0 to 0.107.0                        (default 0.92.0)
#                      Up to 0.99.0 an append echoes the server's own items; from 0.101.0 on it holds the outputs alone.
#   --final TEXT       must be part of the final message        (default: any text)
#   --tool-output TEXT must be part of every command's output   (default: any)
#   --turns N          user turns in one process: more than one are asked of "codex app-server"  (default 1)
#   --timeout S        seconds for the run                      (default 60)
#
# The server must answer the create with a call of the offered shell function (shell_command {"command": ...}, or
# exec_command {"cmd": ...} in later builds) and, once the output came in a response.append, with an assistant message.
# The client's output does not show its frames, so a recording relay stands between the two.
# 0: Codex ended with 0, a command ran and ended with 0, a final message came, and the client's frames were for each turn
# one response.create and then response.append with a tool output, all over WebSocket.
# 1: the check failed. 2: bad usage. 3: Codex could not be installed.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=${XDG_CACHE_HOME:-$HOME/.cache}/respserver/codex-prototype
VERSION=0.92.0
FINAL=
TOOL_OUTPUT=
TURNS=1
TIMEOUT=60

usage() {
  sed -n '2,/^set -u/{/^set -u/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

WORDS=()
while [ $# -gt 0 ]; do
  case $1 in
    -*) [ $# -ge 2 ] || usage ;;
    *) WORDS+=("$1"); shift; continue ;;
  esac
  case $1 in
    --dir) DIR=$2 ;;
    --version) VERSION=$2 ;;
    --final) FINAL=$2 ;;
    --tool-output) TOOL_OUTPUT=$2 ;;
    --turns) TURNS=$2 ;;
    --timeout) TIMEOUT=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ ${#WORDS[@]} -eq 2 ] || usage
# A check never leaves this machine: only loopback addresses are taken.
[[ ${WORDS[0]} =~ ^http://(127\.[0-9.]+|localhost)/?$ ]] || usage
HOST=${BASH_REMATCH[1]}
PORT=${WORDS[1]}
[[ $PORT =~ ^[0-9]+$ && $TURNS =~ ^[1-9]$ ]] || usage
[[ $VERSION =~ ^0\.([0-9]+)\.[0-9]+$ ]] || usage
MINOR=${BASH_REMATCH[1]}
if [ "$MINOR" -lt 89 ] || [ "$MINOR" -gt 107 ]; then usage; fi

# --- Codex itself ---
mkdir -p "$DIR" || exit 3
DIR=$(cd "$DIR" && pwd)
CODEX=$DIR/codex-$VERSION
if [ ! -x "$CODEX" ]; then
  # The binary lies in the main package up to 0.98, then in one for each platform.
  PACKAGE=@openai/codex@$VERSION
  [ "$MINOR" -lt 99 ] || PACKAGE=$PACKAGE-linux-x64
  INSIDE=package/vendor/x86_64-unknown-linux-musl
  DOWNLOAD=$(mktemp -d "$DIR/get.XXXXXX")
  (
    cd "$DOWNLOAD" &&
      npm pack "$PACKAGE" >npm.log 2>&1 &&
      tar xzf ./*.tgz "$INSIDE" &&
      mv "$INSIDE/codex/codex" "$CODEX"
  ) || {
    echo "Codex $VERSION could not be installed" >&2
    tail -n 5 "$DOWNLOAD/npm.log" >&2
    rm -rf "$DOWNLOAD"
    exit 3
  }
  rm -rf "$DOWNLOAD"
fi
"$CODEX" --version 2>/dev/null | grep -qF "$VERSION" || {
  echo "Codex $VERSION does not start" >&2
  exit 3
}

# --- the relay ---
SCRATCH=$(mktemp -d "$DIR/run.XXXXXX")
RELAY=
cleanup() {
  [ -z "$RELAY" ] || { kill "$RELAY" && wait "$RELAY"; } 2>/dev/null
  rm -rf "$SCRATCH"
}
trap cleanup EXIT
mkdir "$SCRATCH/home" "$SCRATCH/work" "$SCRATCH/tmp"
mkfifo "$SCRATCH/port"
python3 "$HERE/recording_relay.py" "$HOST" "$PORT" "$SCRATCH/frames" >"$SCRATCH/port" 2>"$SCRATCH/relay.err" &
RELAY=$!
read -r RELAY_PORT <"$SCRATCH/port"
[ -n "$RELAY_PORT" ] || {
  echo "FAIL: the relay did not start" >&2
  cat "$SCRATCH/relay.err" >&2
  exit 1
}

# --- a home of its own ---
if [ "$MINOR" -le 92 ]; then
  FEATURES=
  WIRE='wire_api = "responses_websocket"'
else
  FEATURES=$'[features]\nresponses_websockets = true'
  WIRE=$'wire_api = "responses"\nsupports_websockets = true'
fi
cat >"$SCRATCH/home/config.toml" <<TOML
model = "gpt-5.2-codex"
model_provider = "e2e"
check_for_update_on_startup = false

[analytics]
enabled = false

$FEATURES

[model_providers.e2e]
name = "e2e"
base_url = "http://127.0.0.1:$RELAY_PORT/v1"
$WIRE
env_key = "CODEX_E2E_PROVIDER_KEY"
request_max_retries = 0
stream_max_retries = 0
TOML
# These builds ask their maker for a model list at start; a dead proxy keeps them on this machine.
DEAD=http://127.0.0.1:1
unset http_proxy https_proxy all_proxy no_proxy OPENAI_API_KEY OPENAI_BASE_URL CODEX_API_KEY
export HTTP_PROXY=$DEAD HTTPS_PROXY=$DEAD ALL_PROXY=$DEAD NO_PROXY=127.0.0.1,localhost
export CODEX_HOME=$SCRATCH/home TMPDIR=$SCRATCH/tmp CODEX_E2E_PROVIDER_KEY=sk-local

# --- the turn, and the judgement ---
PROMPT="Run the echo command once, then answer."
if [ "$TURNS" -eq 1 ]; then
  TALK=("$CODEX" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --json "$PROMPT")
else
  TALK=(python3 "$HERE/codex_app_server.py" "$CODEX")
  for ((turn = 1; turn <= TURNS; turn++)); do TALK+=("$PROMPT"); done
fi
(cd "$SCRATCH/work" && timeout "$TIMEOUT" "${TALK[@]}" </dev/null >"$SCRATCH/out" 2>"$SCRATCH/err")
code=$?
fail() {
  echo "FAIL ($VERSION): $1" >&2
  for file in out err frames; do
    echo "--- $file" >&2
    tail -n 12 "$SCRATCH/$file" | cut -c1-400 >&2
  done
  exit 1
}
[ $code -eq 0 ] || fail "codex exec ended with $code"
python3 "$HERE/codex_judge.py" events "$SCRATCH/out" "$FINAL" "$TOOL_OUTPUT" || fail "its events do not fit"
python3 "$HERE/codex_judge.py" frames "$SCRATCH/frames" "$MINOR" "$TURNS" || fail "its frames do not fit"
echo "PASS: Codex $VERSION against prototype mode"
