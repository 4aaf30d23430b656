#!/usr/bin/env bash
# The part of launch_tpu.sh that runs on the hosts of a slice, from the checkout in ~/bert-jax.
# Everything but the setup works in ~/bert-jax-run, which holds the log, the process id, the corpus, the
# mounted bucket and, once the run has ended, its exit status.
set -euo pipefail

# TPU images come with an older Python than the package needs, so uv brings one.
setup() {
  python3 -m pip install --quiet --target ~/.uv uv
  ~/.uv/bin/uv venv --quiet --seed --allow-existing --python 3.11 venv
  venv/bin/pip install --quiet -c constraints.txt -e '.[tpu]'
}

# fetch WORKDIR CORPUS [MODEL]: copies the corpus and mounts buckets. This takes some hosts longer than
# others, so it is done before the run, in which they wait for each other.
fetch() {
  local directory
  if is_going; then echo "a run goes on here; stop it first" >&2; exit 2; fi
  copy_to_disk corpora "$2"
  for directory in "$1" "${3-}"; do
    case $directory in gs://*) mount_bucket "$directory" ;; esac
  done
}

# run WORKDIR CORPUS EXPERIMENT [OVERRIDES]
run() {
  local workdir=$1 corpus=$2
  shift 2
  set -- "${@/#gs:\/\//gs/}" # the model of --init-from MODEL, the run of --branch-from DIR
  set -- "${@/#--init[-_]from=gs:\/\//--init-from=gs/}"
  set -- "${@/#--branch[-_]from=gs:\/\//--branch-from=gs/}"
  start pretrain "$@" --workdir "$(on_mount "$workdir")" ${corpus:+--data.corpus "$(on_disk corpora "$corpus")"}
}

# run_study DIR CORPUS TASKS STUDY [FLAGS]
run_study() {
  local directory=$1 corpus=$2 tasks=$3
  shift 3
  start study "$@" --output "$(on_mount "$directory")" ${corpus:+--corpus "$(on_disk corpora "$corpus")"} \
    ${tasks:+--tasks "$(on_disk tasks "$tasks")"} --leave-when-idle
}

# Print where a directory lies on this host: a bucket's in the mount, or in its copy among others of a KIND.
on_mount() { case $1 in gs://*) echo "gs/${1#gs://}" ;; *) echo "$1" ;; esac; }
on_disk() { case $2 in gs://*) echo "$1/${2##*/}" ;; *) echo "$2" ;; esac; }

# start COMMAND [FLAGS]: of bert-jax, as one of several processes.
start() {
  if is_going; then return; fi # gcloud repeats the command if a connection broke
  rm -f status pid
  # shellcheck disable=SC2016 # it is the inner shell that expands
  nohup setsid bash -c 'echo $$ > pid; "$@"; echo $? > ended; mv ended status' bash \
    ~/bert-jax/venv/bin/bert-jax "$@" --distributed >> log 2>&1 < /dev/null &
  until [ -s pid ]; do kill -0 $!; sleep 0.1; done # until then the run would end with this login
}

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

is_going() { kill -0 "$(cat pid 2>&1)" 2>/dev/null; }

# Prints `run: ` and going, lost (killed before it recorded a status, or on a full disk) or the exit status.
state() {
  if [ -s status ]; then echo "run: $(cat status)"
  elif is_going; then echo "run: going"
  else echo "run: lost"; fi
}

# logs N: the last N lines.
logs() { tail -n "$1" log | sed "s/^/$HOSTNAME: /"; }

# Asks the run to save a checkpoint and end.
stop() { pkill -TERM -P "$(cat pid)"; }

# Kills what is left here of a run that another host has lost; fails if the installation here is incomplete.
end() {
  local group
  if group=$(cat pid 2>/dev/null); then
    kill -KILL -- "-$group" 2>/dev/null || true
    # A process ends only after its current upload, and keeps the work directory locked until then.
    for _ in {1..120}; do kill -0 -- "-$group" 2>/dev/null || break; sleep 1; done
    rm -f pid
  fi
  [ -f installed ]
}

[ "$1" = setup ] || { mkdir -p ~/bert-jax-run && cd ~/bert-jax-run; }
"$@"
