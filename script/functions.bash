# What the scripts share. Sourced, never run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$(realpath -m "${LOCKSTEP_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}")
python=/usr/bin/python3 # the distribution's: it has venv and pip once bootstrap is through

say() { echo "$(basename "$0"): $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# quietly WHAT COMMAND...: shows what COMMAND wrote only if it failed.
quietly() {
  local what=$1 log status=0
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if ((status)); then
    cat "$log" >&2
    rm -f "$log"
    fail "$what failed (exit code $status); its output is above"
  fi
  rm -f "$log"
}
