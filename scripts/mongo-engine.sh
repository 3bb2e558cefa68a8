# What mongo-up, mongo-down and mongo-kill share: where things are, and how to tell whether the
# two processes of an instance run. Sourced by both; does nothing by itself.
# shellcheck shell=bash

engine_cache=${HOLDFAST_MONGO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/mongo}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# use_instance NAME: the files of an instance.
use_instance() {
  [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,40}$ ]] || die "\"$1\" cannot be an instance's name (letters, digits, dot, dash, underscore)"
  instance=$engine_cache/instances/$1
  gate_pid=$instance/ferretdb.pid
  uri_file=$instance/uri
  data=$instance/data
  if [ -n "${HOLDFAST_MONGO_DATA:-}" ]; then data=$HOLDFAST_MONGO_DATA/holdfast-mongo-$1; fi
  if [ -s "$instance/data-folder" ]; then data=$(<"$instance/data-folder"); fi
  base_pid=$data/postmaster.pid
}

# command_line PID: empty for a process that is gone, or ended and not reaped yet.
command_line() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null || true; }

# runs PIDFILE WORD: the first line of the file is the id of a process whose command
# line has the word.
runs() {
  local pid
  pid=$(head -n 1 "$1" 2>/dev/null) || return 1
  [[ $pid =~ ^[0-9]+$ ]] || return 1
  command_line "$pid" | grep -qF -- "$2"
}

# stop PIDFILE WORD SIGNAL: end that process, and only that one, and wait for it.
stop() {
  local pid
  runs "$1" "$2" || return 0
  pid=$(head -n 1 "$1")
  kill "-$3" "$pid" 2>/dev/null || return 0
  gone "$pid"
}

# gone PID…: wait for their end.
gone() {
  local pid
  for pid in "$@"; do
    for _ in $(seq 500); do
      [ -n "$(command_line "$pid")" ] || continue 2
      sleep 0.02
    done
    die "process $pid does not end"
  done
}

# crash PIDFILE WORD: kill -9 of that process together with all that it started. It is
# halted before, so that it starts nothing while they are looked for.
crash() {
  local pid all
  runs "$1" "$2" || return 0
  pid=$(head -n 1 "$1")
  kill -STOP "$pid"
  mapfile -t all < <(grep -lE "^PPid:[[:space:]]+$pid\$" /proc/[0-9]*/status 2>/dev/null | cut -d / -f 3)
  kill -KILL "$pid" "${all[@]}" 2>/dev/null || true
  gone "$pid" "${all[@]}"
}

# stop_instance: both processes. FerretDB keeps nothing; PostgreSQL writes what it has
# before it ends.
stop_instance() {
  stop "$gate_pid" "$engine_cache/bin/ferretdb" KILL
  stop "$base_pid" "$data" INT
  rm -f "$gate_pid" "$uri_file"
}
