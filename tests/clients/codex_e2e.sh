#!/usr/bin/env bash
# Runs the published Codex CLI against a running server and judges what it did: end to end, with a client that others
# wrote.
#
#   codex_e2e.sh [options] http://127.0.0.1[/PATH] PORT ws|http
#
#   ws|http            WebSocket GET /responses, or HTTP POST /responses with an SSE answer; PATH is /v1 unless given
#   --dir DIR          where Codex is, or is installed to      (default: respserver/codex in the user's cache folder)
#   --version V        npm version of @openai/codex            (default 0.169.0)
#   --model M          model name to ask for; it decides the shape of Codex's requests   (default gpt-5.5)
#   --final TEXT       must be part of every final message     (default: any text)
#   --tool-output TEXT must be part of every command's output  (default: any)
#   --turns N          user turns: the first, then N - 1 times `exec resume --last`      (default 1)
#   --timeout S        seconds for one turn                    (default 60)
#   --keep             keep the scratch folder
#
# The server must answer each user message with a call of Codex's shell tool (function exec_command {"cmd": ...}, or the
# custom tool exec for models in code mode) and, once the output came back, with an assistant message.
# 0: in every turn Codex ended with 0, a command ran and ended with 0, and a final message came; over the transport that
# was asked for, never given up for the other. 1: the check failed. 2: bad usage. 3: Codex could not be installed.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=${XDG_CACHE_HOME:-$HOME/.cache}/respserver/codex
VERSION=0.169.0
MODEL=gpt-5.5
PROMPT="Run the echo command once, then answer."
FINAL=
TOOL_OUTPUT=
TURNS=1
TIMEOUT=60
KEEP=

usage() {
  sed -n '2,/^set -u/{/^set -u/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

WORDS=()
while [ $# -gt 0 ]; do
  case $1 in
    --keep) KEEP=1; shift; continue ;;
    -*) [ $# -ge 2 ] || usage ;;
    *) WORDS+=("$1"); shift; continue ;;
  esac
  case $1 in
    --dir) DIR=$2 ;;
    --version) VERSION=$2 ;;
    --model) MODEL=$2 ;;
    --final) FINAL=$2 ;;
    --tool-output) TOOL_OUTPUT=$2 ;;
    --turns) TURNS=$2 ;;
    --timeout) TIMEOUT=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ ${#WORDS[@]} -eq 3 ] || usage
# A check never leaves this machine: only loopback addresses are taken.
[[ ${WORDS[0]} =~ ^http://(127\.[0-9.]+|localhost|\[::1\])(/.*)?$ ]] || usage
HOST=${BASH_REMATCH[1]}
URLPATH=${BASH_REMATCH[2]%/}
URL=http://$HOST:${WORDS[1]}${URLPATH:-/v1}
[[ ${WORDS[1]} =~ ^[0-9]+$ && $TURNS =~ ^[1-9][0-9]*$ ]] || usage
TRANSPORT=${WORDS[2]}
case $TRANSPORT in ws) USES_WEBSOCKET=true ;; http) USES_WEBSOCKET=false ;; *) usage ;; esac

# --- Codex itself ---
mkdir -p "$DIR" || exit 3
DIR=$(cd "$DIR" && pwd)
CODEX=$DIR/node_modules/.bin/codex
if ! "$CODEX" --version 2>/dev/null | grep -qF "$VERSION"; then
  [ -f "$DIR/package.json" ] || printf '{"name":"codex-e2e","private":true}\n' >"$DIR/package.json"
  npm install --prefix "$DIR" --no-audit --no-fund --include=optional "@openai/codex@$VERSION" >"$DIR/npm.log" 2>&1
  "$CODEX" --version 2>/dev/null | grep -qF "$VERSION" || {
    echo "Codex $VERSION could not be installed" >&2
    tail -n 5 "$DIR/npm.log" >&2
    exit 3
  }
fi

# --- a home of its own ---
# CODEX_HOME must not lie below TMPDIR, or Codex warns and makes no helper links.
SCRATCH=$(mktemp -d "$DIR/run.XXXXXX")
cleanup() {
  if [ -n "$KEEP" ]; then echo "kept $SCRATCH" >&2; else rm -rf "$SCRATCH"; fi
}
trap cleanup EXIT
mkdir "$SCRATCH/home" "$SCRATCH/work" "$SCRATCH/tmp"
cat >"$SCRATCH/home/config.toml" <<TOML
model = "$MODEL"
model_provider = "e2e"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
remote_plugin = false
apps = false

[model_providers.e2e]
name = "e2e"
base_url = "$URL"
wire_api = "responses"
env_key = "CODEX_E2E_PROVIDER_KEY"
supports_websockets = $USES_WEBSOCKET
request_max_retries = 0
stream_max_retries = 1
stream_idle_timeout_ms = 20000
websocket_connect_timeout_ms = 5000
TOML
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY OPENAI_API_KEY OPENAI_BASE_URL CODEX_API_KEY
export NO_PROXY='*' NO_COLOR=1 RUST_LOG=warn,codex_api=info
export CODEX_HOME=$SCRATCH/home TMPDIR=$SCRATCH/tmp CODEX_E2E_PROVIDER_KEY=sk-local

# --- the turns ---
fail() {
  echo "FAIL ($TRANSPORT, $MODEL): $1" >&2
  for file in "$SCRATCH"/out.* "$SCRATCH"/err.*; do
    echo "--- ${file##*/}" >&2
    tail -n 12 "$file" | cut -c1-400 >&2
  done
  exit 1
}

FLAGS=(--skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --json)
for turn in $(seq "$TURNS"); do
  if [ "$turn" -eq 1 ]; then RESUME=(); else RESUME=(resume --last); fi
  (
    cd "$SCRATCH/work" &&
      timeout "$TIMEOUT" "$CODEX" exec "${RESUME[@]}" "${FLAGS[@]}" "$PROMPT" \
        </dev/null >"$SCRATCH/out.$turn" 2>"$SCRATCH/err.$turn"
  )
  code=$?
  [ $code -eq 0 ] || fail "codex exec ended with $code in turn $turn"
done

# --- the judgement ---
for turn in $(seq "$TURNS"); do
  python3 "$HERE/codex_judge.py" events "$SCRATCH/out.$turn" "$FINAL" "$TOOL_OUTPUT" || fail "turn $turn does not fit"
done
if [ $USES_WEBSOCKET = true ]; then
  for turn in $(seq "$TURNS"); do
    grep -q 'successfully connected to Responses WebSocket' "$SCRATCH/err.$turn" || fail "no WebSocket in turn $turn"
  done
  ! grep -q 'falling back to HTTP' "$SCRATCH"/err.* || fail "Codex gave up the WebSocket for HTTP"
else
  ! grep -q 'connecting to Responses WebSocket' "$SCRATCH"/err.* || fail "Codex used a WebSocket"
fi
echo "PASS: Codex $VERSION over $TRANSPORT, model $MODEL, turns: $TURNS"
