#!/usr/bin/env bash
# The part of launch_tpu.sh that runs on the hosts of a slice, from the checkout in ~/bert-jax.
# Everything but the setup works in ~/bert-jax-run, which holds the log, which process the run is and where its
# directory is, the corpus, the mounted bucket and, once the run has ended, its exit status.
set -euo pipefail

# TPU images come with an older Python than the package needs, so uv brings one.
setup() {
  python3 -m pip install --quiet --target ~/.uv uv
  ~/.uv/bin/uv venv --quiet --seed --allow-existing --python 3.11 venv
  venv/bin/pip install --quiet -c constraints.txt -e '.[tpu]'
}

# fetch COMMAND WORKDIR CORPUS TASKS WORDS: copies corpus and tasks, and mounts the buckets of all else. This takes
# some hosts longer than others, so it is done before the run, in which they wait for each other.
fetch() {
  local word
  if is_going; then echo "a run goes on here; stop it first" >&2; exit 2; fi
  copy_to_disk corpora "$3"
  copy_to_disk tasks "$4"
  for word in "$2" "${@:5}"; do
    word=${word#--*=} # the model of --init-from=MODEL
    case $word in gs://*) mount_bucket "$word" ;; esac
  done
}

# run COMMAND WORKDIR CORPUS TASKS WORDS: starts `bert-jax COMMAND WORDS` as one of several processes.
run() {
  local command=$1 directory corpus tasks
  if is_going; then return; fi # gcloud repeats the command if a connection broke
  directory=$(on_mount "$2") corpus=$(on_disk corpora "$3") tasks=$(on_disk tasks "$4")
  shift 4
  set -- "${@/#gs:\/\//gs/}" # the model of --init-from MODEL, the run of --branch-from DIR
  set -- "${@/#--init[-_]from=gs:\/\//--init-from=gs/}"
  set -- "${@/#--branch[-_]from=gs:\/\//--branch-from=gs/}"
  case $command in
    study) set -- "$@" --output "$directory" --corpus "$corpus" --tasks "$tasks" --leave-when-idle ;;
    *) set -- "$@" --workdir "$directory" --data.corpus "$corpus" ;;
  esac
  rm -f status process
  echo "$directory" > directory
  # shellcheck disable=SC2016 # it is the inner shell that expands
  nohup setsid bash -c 'bash "$0" identity $$ > process; "$@"; echo $? > ended; mv ended status' \
    ~/bert-jax/tpu_host.sh ~/bert-jax/venv/bin/bert-jax "$command" "$@" --distributed >> log 2>&1 < /dev/null &
  until [ -s process ]; do kill -0 $!; sleep 0.1; done # until then the run would end with this login
}

# Print where a directory lies on this host: a bucket's in the mount, or in its copy among others of a KIND.
on_mount() { case $1 in gs://*) echo "gs/${1#gs://}" ;; *) echo "$1" ;; esac; }
on_disk() { case $2 in gs://*) echo "$1/${2##*/}" ;; *) echo "$2" ;; esac; }

# copy_to_disk KIND DIR: nothing to do if it is not in a bucket.
copy_to_disk() {
  case $2 in gs://*) ;; *) return 0 ;; esac
  mkdir -p "$(on_disk "$1" "$2")"
  gcloud storage rsync --recursive --delete-unmatched-destination-objects "$2" "$(on_disk "$1" "$2")"
}

mount_bucket() {
  local bucket=${1#gs://}
  bucket=${bucket%%/*}
  if mountpoint -q "gs/$bucket"; then return; fi
  install_gcsfuse >/dev/null
  fusermount -uz "gs/$bucket" 2>/dev/null || true # the rest of a mount whose program died
  mkdir -p "gs/$bucket"
  # No caches: a host sees at once what another wrote. No streaming: data that was synced survives the host.
  gcsfuse --implicit-dirs --rename-dir-limit=100000 --metadata-cache-ttl-secs=0 \
    --metadata-cache-negative-ttl-secs=0 --enable-streaming-writes=false "$bucket" "gs/$bucket"
}

install_gcsfuse() {
  local apt=https://packages.cloud.google.com/apt
  if command -v gcsfuse >/dev/null; then return; fi
  echo "deb $apt gcsfuse-$(lsb_release -cs) main" | sudo tee /etc/apt/sources.list.d/gcsfuse.list
  curl -fsS $apt/doc/apt-key.gpg | sudo tee /etc/apt/trusted.gpg.d/gcsfuse.asc
  # A fresh host first updates itself, and holds a lock that apt-get update does not wait for.
  for _ in {1..30}; do if sudo apt-get update; then break; fi; sleep 10; done
  sudo apt-get -o DPkg::Lock::Timeout=300 install --yes gcsfuse
}

# identity PID: tells a process by its boot and its start too. After a reboot another process may have its id.
identity() {
  local fields
  fields=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return
  echo "$1 $(cat /proc/sys/kernel/random/boot_id) $(cut -d ' ' -f 20 <<<"$fields")"
}

# Prints the id of the run's process, which leads the group of all its processes; fails if it does not go on.
leader() {
  local pid
  read -r pid _ 2>/dev/null < process && [ "$(identity "$pid")" = "$(cat process)" ] && echo "$pid"
}

is_going() { leader >/dev/null 2>&1; }

# state MINUTES: prints `run: `, how the run stands, and a word that changes with each checkpoint. It is going,
# stalled (for so long there was no new metric, nor a new line in the log of any job of a study), finished, ended
# (killed, or with a status after which it may go on), or at the status that it failed with.
state() {
  local status=ended
  if [ -s status ]; then status=$(cat status) # empty: killed, or on a full disk
  elif is_going; then
    status=stalled
    if [ -n "$(files metrics.jsonl log.txt | xargs -d '\n' stat -c '%Y' -- process 2>/dev/null |
      awk -v now="$(date +%s)" -v minutes="$1" '$1 > now - 60 * minutes')" ]; then status=going; fi
  fi
  case $status in
    0) status=finished ;;
    # Another host or the storage was lost; saved; killed by a signal.
    69 | 75 | 12[89] | 1[3-9]? | 2??) status=ended ;;
  esac
  echo "run: $status $(files 'checkpoints/*' job.json | grep -E '/[0-9]+$|/job.json$' | cksum | tr ' ' -)"
}

# files NAMES: lists what has such a name in the run's directory or, of a study, in those of the jobs that this host
# has begun: what other slices do is no sign of this one.
files() {
  local directory job name
  directory=$(cat directory 2>/dev/null) || return 0
  for job in . $(sed -n 's/^\([^ ]*\): begun$/\1/p' log 2>/dev/null | sort -u); do
    for name in "$@"; do compgen -G "$directory/$job/$name" || true; done
  done
}

# logs N: the last N lines.
logs() { tail -n "$1" log | sed "s/^/$HOSTNAME: /"; }

# Asks the run to save a checkpoint and end.
stop() {
  local pid
  if pid=$(leader); then pkill -TERM -P "$pid"; else echo "no run is going on here"; fi
}

# Kills what is left here of a run that another host has lost; fails if the installation here is incomplete.
end() {
  local group boot
  if read -r group boot _ 2>/dev/null < process && [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] &&
    { [ ! -e "/proc/$group" ] || is_going; }; then
    kill -KILL -- "-$group" 2>/dev/null || true
    # A process ends only after its current upload, and keeps the work directory locked until then.
    for _ in {1..120}; do kill -0 -- "-$group" 2>/dev/null || break; sleep 1; done
  fi
  rm -f process status
  [ -f installed ]
}

[ "$1" = setup ] || { mkdir -p ~/bert-jax-run && cd ~/bert-jax-run; }
"$@"
