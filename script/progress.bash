# How far a long step is, and about how long it still takes, in one line on standard error: on a terminal one that changes
# each second, elsewhere a new one now and then. Sourced after functions.bash, never run.
#
#   start_progress WHAT MEASURE PLACE   until end_progress
#
# `MEASURE PLACE` prints how much is done, of how much, in which unit, and what is under way: "12 140 steps ring.cpp". It
# prints nothing while it cannot know.

start_progress() {
  watch_progress "$@" &
  progress_watcher=$!
}

end_progress() {
  [[ ${progress_watcher:-} ]] || return 0
  kill "$progress_watcher" 2>/dev/null || true
  wait "$progress_watcher" 2>/dev/null || true
  progress_watcher=
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}

watch_progress() { # WHAT MEASURE PLACE
  local what=$1 measure=$2 place=$3 began=$SECONDS said=0 pause=10 measured line
  set +e
  trap - EXIT
  [[ ! -t 2 ]] || pause=1
  while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do # a script that was killed has nobody to end this
    ((SECONDS - began - said >= pause)) || continue
    measured=$("$measure" "$place" 2>/dev/null)
    [[ $measured ]] || continue
    said=$((SECONDS - began))
    line="$(basename "$0"): $what: $(describe_progress "$said" $measured)"
    if [[ -t 2 ]]; then
      printf '\r\033[K%s' "${line:0:$(($(tput cols 2>/dev/null || echo 80) - 1))}" >&2
    else
      echo "$line" >&2
    fi
  done
}

# describe_progress SECONDS DONE TOTAL UNIT [UNDER WAY]: "12 of 140 steps, about 2 min left (ring.cpp)". What is left is
# taken to go on as before.
describe_progress() {
  local seconds=$1 done=$2 total=$3 unit=$4 text left
  shift 4
  ((done <= total)) || done=$total
  if [[ $unit == % ]]; then text="$((100 * done / total)) %"; else text="$done of $total $unit"; fi
  if ((seconds >= 5 && done * 20 >= total)); then
    left=$((seconds * (total - done) / done))
    if ((left >= 90)); then text+=", about $(((left + 30) / 60)) min left"; else text+=", about $left s left"; fi
  fi
  echo "$text${*:+ ($*)}"
}

# What ninja wrote into a file: "[12/140] Building CXX object .../ring.cpp.o".
ninja_progress() {
  local line
  line=$(grep '^\[[0-9]*/[0-9]*\] ' "$1" | tail -1)
  [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*)$ ]] || return 0
  line=${BASH_REMATCH[3]##*/}
  echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]} steps ${line%.o}"
}

# What lies in a folder, of the MB that it will hold: PLACE is "FOLDER MB".
folder_progress() {
  local mb
  mb=$(du -sm "${1% *}" | cut -f1)
  echo "${mb:-0} ${1##* } MB"
}

# What apt-get writes to APT::Status-Fd: from 0 to 100 for fetching, then again for installing.
apt_progress() {
  local kind name percent
  IFS=: read -r kind name percent _ < <(grep -E '^(dl|pm)status:' "$1" | tail -1)
  percent=${percent%%.*}
  case $kind in
    dlstatus) echo "$((percent / 2)) 100 % fetching" ;;
    pmstatus) echo "$((50 + percent / 2)) 100 % $name" ;;
  esac
}
