#!/usr/bin/env bash
# Rents a Cloud TPU slice, installs a commit of this repository on its hosts, and trains there until
# the run has finished, on a new slice whenever the old one is taken away. docs/tpu.md explains it.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: launch_tpu.sh VERB NAME [FLAGS] [-- EXPERIMENT [OVERRIDES]]

  launch_tpu.sh train my-bert --zone us-west4-a --project my-project \
      --type v5litepod-16 --spot --workdir gs://my-bucket/runs/base \
      --corpus gs://my-bucket/corpora/wiki -- base --seed 1
  launch_tpu.sh study my-study --zone us-west4-a --project my-project \
      --type v5litepod-8 --slices 3 --spot --workdir gs://my-bucket/studies/5 \
      --corpus gs://my-bucket/corpora/wiki --tasks gs://my-bucket/tasks \
      -- table5 --scale paper

verbs, for the slice NAME:
  create   rent it: on demand, --spot, or through Google's queue (--queued)
  install  put a commit of the repository, and what it needs, on all hosts
  run      start `bert-jax pretrain EXPERIMENT [OVERRIDES]` on all hosts; it
           outlives this shell
  watch    wait for the run. If it is lost: start it again, once in place, then
           on another slice. If it fails with status 1: start it again, once.
           When it has finished: delete the slice.
  train    create, install, run, watch
  study    the same for `bert-jax study STUDY [FLAGS]`, on each of --slices;
           watches a slice that is there, and rents none if nothing is left
  status   the state of the slice and of the run
  logs     the last lines of each host's log (--lines)
  stop     ask the run to save and end; the slice stays
  delete   give the slice back

flags:
  --zone ZONE           or CLOUDSDK_COMPUTE_ZONE in the environment
  --project PROJECT     or CLOUDSDK_CORE_PROJECT
  --type TYPE           accelerator: v4-32, v5litepod-16, v5p-32, v6e-16, ...
  --spot                cheaper; may be taken away at any time
  --queued              wait until there is room
  --runtime-version V   image of the hosts (default: the one for the type)
  --commit COMMIT       what to install (default: HEAD; `watch`: that of the
                        run)
  --repository URL      where the hosts fetch it (default: the remote `origin`)
  --setup COMMAND       installs the checkout in which it is run, as
                        venv/bin/bert-jax (default: Python 3.11 by uv, and pip
                        with constraints.txt and .[tpu])
  --workdir DIR         gs://BUCKET/..., or a path on a disk that all hosts
                        share; of a study its --output
  --corpus DIR          gs://BUCKET/... is copied to each host's disk; a path is
                        used as it is
  --tasks DIR           of a study: the same for the tasks' files
  --slices N            of a study: the slices are NAME-1 to NAME-N; also for
                        status, logs, stop and delete (default: 1, NAME itself)
  --create-flags WORDS  further flags for gcloud's create, as one word:
                        "--network=N --internal-ips"
  --ssh-flags WORDS     further flags for gcloud's ssh: "--internal-ip"
  --max-slices N        `watch`, `train` and `study` rent at most so many, one
                        after the other in place of each (default: 20)
  --poll-seconds N      seconds between checks of the run (default: 30)
  --lines N             of each host's log (default: 50)
  --dry-run             check the flags, print the gcloud commands and run none
  --help                print this

exit status: 0 finished; 2 bad input; 69 two slices in a row made no new
  checkpoint, or gcloud does not say whether there is a slice to delete or
  watch, or which commit its run has; 75 no slices left, or the hosts do not
  answer: `watch` resumes, or `train` with the same words where the slice is no
  longer listed; 130 Ctrl-C; otherwise that of a command or a run which has
  failed and would fail again.
EOF
}

say() { echo "launch_tpu.sh: $*"; }
fail() { echo "launch_tpu.sh: error: $*" >&2; exit 2; }

# Prints the words quoted for a shell, each after a space.
quote() {
  local word quoted="'\\''"
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,@%+-]*) printf " '%s'" "${word//\'/$quoted}" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
}

# ask ASSUMED ARGUMENTS: runs gcloud; a dry run prints the call and uses ASSUMED as its answer.
ask() {
  local assumed=$1
  shift
  if [ -z "$dry_run" ]; then gcloud "$@"; return; fi
  echo "gcloud$(quote "$@")" >&3
  printf '%s' "$assumed"
}

# on_hosts ASSUMED COMMAND: runs a shell command on all hosts at once.
on_hosts() { ask "$1" compute tpus tpu-vm ssh "$name" "${login[@]}" --worker=all --command="$2"; }

# Print the state of the slice, and of its request in the queue; nothing if there is none.
slice_state() {
  ask "$1" compute tpus tpu-vm list "${place[@]}" --filter="name ~ /$name\$" --format='value(state)'
}
queue_state() {
  ask "$1" compute tpus queued-resources list "${place[@]}" --filter="name ~ /$name\$" \
    --format='value(state.state)'
}

# Sets `state` to the slice's state and `request` to that of its request in the queue; empty if there is none.
find_slice() {
  { request=$(queue_state "${queued:+ACTIVE}") && state=$(slice_state READY); } || {
    say "error: gcloud does not say whether $name is there; if it is, it costs" >&2
    return 69
  }
}

# ---- checks before anything is created

check_account() {
  local account
  [ -n "$dry_run" ] || command -v gcloud >/dev/null ||
    fail "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
  account=$(ask me auth list --filter=status:ACTIVE --format='value(account)' 2>/dev/null) || account=''
  [ -n "$account" ] || fail "gcloud is not logged in; run: gcloud auth login"
}

check_type() {
  local offered
  case $runtime,$type in
    *,) fail "no accelerator type: pass --type, for example v5litepod-16" ;;
    ,v[234]-[0-9]*) runtime=tpu-ubuntu2204-base ;;
    ,v5litepod-[0-9]*) runtime=v2-alpha-tpuv5-lite ;;
    ,v5p-[0-9]*) runtime=v2-alpha-tpuv5 ;;
    ,v6e-[0-9]*) runtime=v2-alpha-tpuv6e ;;
    ,*) fail "unknown accelerator type '$type'; known: v2-N, v3-N, v4-N, v5litepod-N, v5p-N, v6e-N;" \
      "others need --runtime-version" ;;
  esac
  offered=$(ask "$type" compute tpus tpu-vm accelerator-types list "${place[@]}" \
    --format='value(type)' 2>&1) ||
    fail "cannot list the accelerator types of zone $zone: ${offered##*$'\n'}"
  grep -qxF -e "$type" <<<"$offered" ||
    fail "zone $zone has no accelerator type $type; it has: $(sort -V <<<"$offered" | xargs)"
}

check_name_is_free() {
  local state
  state=$(slice_state '')
  state=$state$(queue_state '')
  [ -z "$state" ] || fail "slice name $name is already in use in $zone ($state); choose another, or:" \
    "launch_tpu.sh delete $itself"
}

check_there_is_a_slice() {
  local request state
  find_slice || exit
  [ -n "$state$request" ] || fail "there is no slice $name in $zone of project $project, and no request for one:" \
    "look for another name or zone; if it is gone, \`train\` with the same words rents one and resumes from the" \
    "newest checkpoint in $workdir"
}

# Runs git as a host would: without a password, a key, or this user's settings.
git_of_a_host() {
  HOME=$probe GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \
    GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true GIT_SSH_COMMAND=false git -C "$probe" "$@" 2>/dev/null
}

check_commit() {
  local probe wanted shown readable=''
  : "${commit:=HEAD}"
  commit=$(git -C "$here" rev-parse --verify --quiet "$commit^{commit}" || echo "$commit")
  : "${repository:=$(git -C "$here" remote get-url origin 2>/dev/null || true)}"
  [ -n "$repository" ] || fail "no repository: $here has no remote \`origin\`; pass --repository URL"
  case $repository in
    ssh://git@*) repository=https://${repository#ssh://git@} ;;
    git@*:*) repository=${repository#git@} && repository=https://${repository/:/\/} ;;
  esac
  [ -z "$dry_run" ] || return 0
  wanted=$commit probe=$(mktemp -d)
  shown=$repository
  case $shown in https://*@*) shown=https://${shown#*@} ;; esac # without a token
  git_of_a_host init --quiet
  commit=$(git_of_a_host fetch --quiet --depth 1 "$repository" "$wanted" &&
    git_of_a_host rev-parse FETCH_HEAD) || commit=''
  if git_of_a_host ls-remote --quiet "$repository" >/dev/null; then readable=yes; fi
  rm -rf "$probe"
  [ -n "$readable" ] || fail "the hosts cannot read $shown: they have no password and no key; if it is" \
    "private, put a token that may only read it into the address: --repository https://oauth2:TOKEN@..."
  [ -n "$commit" ] || fail "no commit $wanted at $shown; push it, or name another with --commit"
  [ ! -d "$repository" ] || say "note: $repository is a directory of this machine; if the hosts do not have it too," \
    "name an address that they can read: --repository https://..." >&2
}

# Notes what HEAD lacks: uncommitted changes, and modules that git does not track. Not called with --commit,
# which need not be what is checked out here.
note_uncommitted() {
  local files
  files=$(git -C "$here" diff --name-only HEAD &&
    git -C "$here" ls-files --others --exclude-standard -- {bert_jax,data_pipeline,experiments}/\*.py) 2>/dev/null ||
    return 0
  case $files in
    '') return 0 ;;
    *$'\n'*$'\n'*$'\n'*) files="$(sed -n 1,3p <<<"$files")"$'\n...' ;;
  esac
  say "note: the hosts get HEAD, without what is not committed: ${files//$'\n'/ }" >&2
}

take_commit() {
  local given=$commit
  check_commit
  [ -n "$given" ] || note_uncommitted
}

# read_from_bucket FILE: prints a file; nothing if there is none. Listing objects succeeds where there are none,
# so that the exit status tells a missing file from one that cannot be read.
read_from_bucket() {
  local found
  found=$(ask "$1" storage objects list "$1" --format='value(name)') || return
  [ -z "$found" ] || ask '' storage cat "$1"
}

# Sets `commit` to the one a resumed run was last started with, which `bert-jax pretrain` recorded in the
# work directory.
take_commit_of_run() {
  local file=$workdir/config.json found
  [ -z "$commit" ] || return 0
  case $workdir in
    gs://*) found=$(read_from_bucket "$file" 2>&1) ;;
    *) found=$(on_hosts '' "[ ! -e$(quote "$file") ] || cat$(quote "$file")" 2>&1) ;;
  esac || {
    say "error: cannot read $file, which names the run's commit (${found##*$'\n'}); try again, or pass --commit" >&2
    exit 69
  }
  commit=$(grep -oE '"commit": "[0-9a-f]+"' <<<"$found" | tail -n 1 | cut -d '"' -f 4) || true
  [ -n "$commit" ] || say "$file names no commit: another slice would get HEAD; or pass --commit"
}

# Finds the model, or the run to branch from, and the corpus among the experiment's overrides.
read_words() {
  while [ $# -gt 0 ]; do
    case $1 in
      --init[-_]from | --branch[-_]from) model=${2-} ;;
      --init[-_]from=* | --branch[-_]from=*) model=${1#*=} ;;
      --data.corpus) own_corpus=${2-} ;;
      --data.corpus=*) own_corpus=${1#*=} ;;
    esac
    shift
  done
}

check_run() {
  local directory answer own_corpus=''
  [ $# -gt 0 ] || fail "no experiment: name one after --, for example: -- base --seed 1"
  case $command,$tasks in
    study,) fail "no tasks: pass --tasks gs://BUCKET/tasks, with a directory for each data set" ;;
    pretrain,?*) fail "--tasks is for a study: launch_tpu.sh study NAME ..." ;;
  esac
  [ -n "$workdir" ] || fail "no work directory: pass --workdir gs://BUCKET/runs/NAME"
  read_words "$@"
  [ -n "$corpus$own_corpus" ] || fail "no corpus: pass --corpus gs://BUCKET/corpora/NAME"
  case $own_corpus in gs://*) fail "pass $own_corpus as --corpus, before --; it is then copied to the hosts" ;; esac
  case $workdir,$model in
    *, | *,gs://?* | /*,/*) ;;
    *) fail "the model or run '$model' is not on the hosts: copy it to the bucket, and pass gs://BUCKET/..." ;;
  esac
  for directory in "$workdir" "$corpus" "$own_corpus" "$model" "$tasks"; do
    case $directory in
      gs://?*)
        # The work directory need not exist yet, so only its bucket is checked.
        if [ "$directory" = "$workdir" ]; then directory=${directory#gs://} && directory=gs://${directory%%/*}; fi
        answer=$(ask '' storage ls "$directory" 2>&1) || fail "cannot read $directory: ${answer##*$'\n'}" ;;
      /* | '') ;;
      *) fail "'$directory' is not on the hosts: pass gs://BUCKET/... or the absolute path of a shared disk" ;;
    esac
  done
  check_experiment "$@"
}

# Checks the experiment's flags with this machine's bert-jax, if it has one.
check_experiment() {
  local answer directory status=0
  command -v bert-jax >/dev/null || return 0
  case $command in study) directory=--output ;; *) directory=--workdir ;; esac
  answer=$(bert-jax "$command" "$@" "$directory" "$workdir" --check-flags 2>&1) || status=$?
  answer=${answer##*$'\n'}
  [ $status -ne 2 ] || fail "the bert-jax of this machine refuses -- $*: ${answer#bert-jax: error: }"
}

# ---- the verbs

create() {
  local state
  say "creating $name: $type in $zone${spot:+, spot}${queued:+, queued}"
  if [ -z "$queued" ]; then
    ask '' compute tpus tpu-vm create "$name" "${creation[@]}" \
      --accelerator-type="$type" --version="$runtime" ${spot:+"$spot"}
    return
  fi
  ask '' compute tpus queued-resources create "$name" --node-id="$name" "${creation[@]}" \
    --accelerator-type="$type" --runtime-version="$runtime" ${spot:+"$spot"} || return
  while true; do
    if state=$(queue_state ACTIVE); then
      case $state in
        ACTIVE) return ;;
        FAILED | SUSPEND*) say "the queue gave up: $state"; return 1 ;;
        '') say "the request is no longer in the queue: someone else deleted it"; return 1 ;;
        *) say "in the queue: $state" ;;
      esac
    else
      say "gcloud does not say how the request stands; looking again"
    fi
    sleep "$poll"
  done
}

install() {
  local mounting="$on_host install_gcsfuse >/dev/null" mark=../bert-jax-run/installed steps
  case $workdir,$model in
    /*,gs://*) ;;
    /*) mounting=true ;;
  esac
  say "installing $commit on $name"
  steps="mkdir -p ~/bert-jax ~/bert-jax-run && cd ~/bert-jax && rm -f $mark && git init --quiet"
  steps+=" && git fetch --quiet --depth 1$(quote "$repository" "$commit")"
  steps+=" && git checkout --quiet --force FETCH_HEAD && { $setup; } && $mounting && touch $mark"
  on_hosts '' "$steps"
}

run() {
  say "starting the run in $workdir"
  on_hosts '' "$on_host fetch$(quote "$workdir" "$corpus" ${model:+"$model"})" || return
  if [ "$command" = study ]; then
    on_hosts '' "$on_host copy_to_disk tasks$(quote "$tasks")" &&
      on_hosts '' "$on_host run_study$(quote "$workdir" "$corpus" "$tasks" "$@")"
  else
    on_hosts '' "$on_host run$(quote "$workdir" "$corpus" "$@")"
  fi
}

logs() { on_hosts '' "$on_host logs $lines"; }

delete() {
  local request state
  find_slice || return
  if [ -n "$request" ]; then
    say "deleting $name and its request in the queue"
    ask '' compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet
  elif [ -n "$state" ]; then
    say "deleting $name"
    ask '' compute tpus tpu-vm delete "$name" "${place[@]}" --quiet
  elif [ "$verb" = delete ]; then
    fail "there is no slice $name in $zone of project $project, and no request for one"
  fi
}

status() {
  local state request
  state=$(slice_state READY)
  request=$(queue_state "${queued:+ACTIVE}")
  say "slice $name: ${state:-none}${request:+; its request in the queue: $request}"
  if [ "$state" = READY ]; then on_hosts '' "$on_host state; $on_host logs 1"; fi
}

# Prints the newest checkpoint's step, or the last known one if the list cannot be read; nothing without one. Of
# a study: a checksum of what all slices have done.
newest_checkpoint() {
  local list
  if [ "$command" = study ]; then
    list=$(on_storage "*/*/*/job.json" "*/*/*/trials/*/result.json" "*/*/pretraining/checkpoints/*") || true
    [ -z "$list" ] || cksum <<<"$list"
    return
  fi
  case $workdir in
    gs://*) list=$(ask '' storage ls "$workdir/checkpoints/" 2>/dev/null) ;;
    *) list=$(on_hosts '' "ls$(quote "$workdir/checkpoints")" 2>/dev/null) ;;
  esac || list=$newest
  grep -oE '(^|/)[0-9]+/?$' <<<"$list" | tr -d / | sort -n | tail -n 1 || true
}

# Prints the files and directories in the work directory that match the patterns; nothing without one.
on_storage() {
  local patterns=("${@/#/$workdir/}")
  case $workdir in
    gs://*) ask '' storage ls "${patterns[@]}" 2>/dev/null ;;
    *) on_hosts '' "ls -d $(printf '%s ' "${patterns[@]}")" 2>/dev/null ;;
  esac
}

# Whether the workers of a study have noted that nothing is left to do of just these words.
nothing_left() {
  local noted
  [ "$command" = study ] || return 1
  case $workdir in gs://*) noted=$(ask '' storage cat "$workdir/progress.json" 2>/dev/null) ;; *) return 1 ;; esac
  grep -qF -e "\"command\": \"$* --output " <<<"$noted" && grep -q '"left": 0$' <<<"$noted"
}

# Prints the state of slice and run: wait, silent (the hosts do not answer), lost (there is no slice, and none
# comes from the queue), ended (the run was lost or saved, but the slice is there), finished, or the exit
# status of a run that would fail again.
look() {
  local state answer next="finished"
  if ! { state=$(slice_state READY) && state=${state:-$(queue_state '')}; }; then
    say "gcloud does not answer; looking again" >&2
    echo wait
    return
  fi
  case $state in
    READY) ;;
    CREATING | STARTING | RESTARTING | REPAIRING | REIMAGING) echo wait; return ;;
    ACCEPTED | PROVISIONING | WAITING_FOR_RESOURCES) echo wait; return ;; # its request in the queue
    *) echo lost; return ;;
  esac
  answer=$(on_hosts 'run: 0' "$on_host state || echo run: lost" 2>&1) || {
    answer=$(grep -vE '^SSH: |^Retrying: |^Failed to execute|return code|^$' <<<"$answer" | tail -n 1)
    say "the hosts do not answer (${answer:-ssh did not say why}); looking again" >&2
    echo silent
    return
  }
  answer=$(sed -n 's/^run: //p' <<<"$answer")
  for state in ${answer:-lost}; do
    case $state in
      0) ;;
      going) [ "$next" = ended ] || next="wait" ;;
      # Another host or the storage was lost; saved; killed by a signal.
      69 | 75 | lost | 12[89] | 1[3-9]? | 2??) next=ended ;;
      *) next=$state && break ;;
    esac
  done
  echo "$next"
}

watch() {
  local slices=1 fruitless=0 silent=0 newest='' restarted_at=never failed_at=never next
  trap interrupted INT
  newest=$(newest_checkpoint)
  while true; do
    next=$(look)
    # When a host is taken away, the processes of the others die first: only a second look shows the reason.
    case $next in lost | ended | [1-9]*) sleep "$poll" && next=$(look) ;; esac
    if [ "$next" = lost ] && nothing_left "$@"; then next=finished; fi
    if [ "$next" = silent ]; then silent=$((silent + 1)); else silent=0; fi
    # gcloud tries ten times in each look. The run may be fine, and this machine's key or network at fault.
    [ "$silent" -lt 5 ] || leave 75 "the hosts do not answer; \`watch\` looks again"
    case $next in
      wait | silent) sleep "$poll" ;;
      lost) say "the slice was taken away" && replace "$@" ;;
      ended) start_again "$@" ;;
      finished)
        say "finished: $workdir holds the run"
        until delete; do sleep "$poll"; done
        return ;;
      1) start_once_more "$@" ;;
      *) give_up "$next" ;;
    esac
  done
}

# Status 1 may be due to a failed chip. If the run ends so again before its next checkpoint, it is a defect or
# NaN.
start_once_more() {
  local made
  made=$(newest_checkpoint)
  [ "$made" != "$failed_at" ] || give_up 1
  say "the run ended with status 1"
  failed_at=$made restarted_at=never
  start_again "$@"
}

give_up() {
  logs || true
  leave "$1" "the run ended with status $1 and would again"
}

# Starts the run again: on the same slice if a checkpoint was made since the last such start, else on another.
start_again() {
  local made
  made=$(newest_checkpoint)
  if [ "$made" != "$restarted_at" ]; then
    say "the run was lost; starting it again on the same slice"
    restarted_at=$made
    # A slice has no checkout yet if it came from the queue without this `watch`, or despite gcloud's failure.
    { { on_hosts '' "$on_host end" || install; } && run "$@"; } || say "that failed; looking again"
    return
  fi
  count_fruitless
  replace "$@"
}

# Counts slices that made no new checkpoint, so that a run that fails everywhere does not rent slice after
# slice. Slices that Google takes away are not counted.
count_fruitless() {
  local made
  made=$(newest_checkpoint)
  if [ "$made" = "$newest" ]; then fruitless=$((fruitless + 1)); else fruitless=0; fi
  [ "$fruitless" -lt 2 ] || { logs || true; leave 69 "two slices in a row made no new checkpoint"; }
}

replace() {
  local made refused
  while true; do
    refused=''
    [ "$slices" -lt "$max_slices" ] ||
      leave 75 "used up $slices slices; $workdir keeps the last checkpoint, from which \`watch\` resumes, or \`train\`\
 with the same words where the slice is no longer listed"
    if delete && create; then
      slices=$((slices + 1)) restarted_at=never made=$(newest_checkpoint)
      # A slice that was taken away may have made a checkpoint; the next failure is then the first in a row.
      [ "$made" = "$newest" ] || fruitless=0
      newest=$made
      say "slice $slices of at most $max_slices"
      if install && run "$@"; then return; fi
      [ "$(look)" = lost ] || count_fruitless
    else
      refused=yes
    fi
    for _ in {1..10}; do sleep "$poll"; done # there is seldom room for a new slice at once
    if [ -n "$refused" ] && [ "$(look)" != lost ]; then
      say "there may be a slice now which this shell has not made; looking on"
      restarted_at=never
      return
    fi
  done
}

train() {
  trap interrupted INT
  create || leave 1 "failed"
  if ! { install && run "$@"; }; then
    sleep "$poll" # the state of a slice that is taken away changes a little later
    [ "$(look)" = lost ] || leave 1 "failed"
  fi
  watch "$@"
}

# Looks after one slice of a study.
study() {
  local state request
  find_slice || return
  if [ -n "$state$request" ]; then watch "$@"
  elif nothing_left "$@"; then say "nothing is left to do of: $*"
  else train "$@"; fi
}

# Makes this shell that of one of several slices.
take_slice() { name=$name-$1 && itself="$name $where"; }

# each VERB [WORDS]: for each of the slices at once; returns the worst status.
each() {
  local number status=0 worst=0 pid pids=()
  if [ "$num_slices" = 1 ]; then "$@"; return; fi
  trap 'kill "${pids[@]}" 2>/dev/null; interrupted' INT # they themselves do not see it
  for number in $(seq "$num_slices"); do
    (take_slice "$number" && "$@") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || { status=$? && [ $status -le $worst ] || worst=$status; }
  done
  return $worst
}

leave() {
  say "$2. The slice, or what is left of it, stays, and costs: launch_tpu.sh delete $itself"
  exit "$1"
}

interrupted() {
  echo
  say "interrupted. The slice and its run go on, and cost; \`watch\` with the same flags looks on. To end:"
  say "  launch_tpu.sh stop $itself"
  say "  launch_tpu.sh delete $itself"
  exit 130
}

# ---- the command line

case ${1:-} in -h | --help) usage; exit ;; esac
[ $# -ge 2 ] || fail "pass a verb and the name of a slice; \`launch_tpu.sh --help\` shows how"
verb=$1 name=$2
case $verb in
  create | install | run | watch | train | study | status | logs | stop | delete) ;;
  *) fail "unknown verb '$verb'; valid: create install run watch train study status logs stop delete" ;;
esac
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
zone=${CLOUDSDK_COMPUTE_ZONE:-} project=${CLOUDSDK_CORE_PROJECT:-}
type='' spot='' queued='' runtime='' commit='' repository='' setup='bash tpu_host.sh setup'
workdir='' corpus='' tasks='' model='' create_flags='' ssh_flags=''
command=pretrain && [ "$verb" != study ] || command=study
num_slices=1 max_slices=20 poll=30 lines=50 dry_run=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --spot) spot=--spot && shift && continue ;;
    --queued) queued=yes && shift && continue ;;
    --dry-run) dry_run=yes && shift && continue ;;
    --help) usage; exit ;;
  esac
  [ $# -ge 2 ] || fail "$1: unknown flag, or a flag without a value"
  case $1 in
    --zone) zone=$2 ;;
    --project) project=$2 ;;
    --type) type=$2 ;;
    --runtime-version) runtime=$2 ;;
    --commit) commit=$2 ;;
    --repository) repository=$2 ;;
    --setup) setup=$2 ;;
    --workdir) workdir=${2%/} ;;
    --corpus) corpus=${2%/} ;;
    --tasks) tasks=${2%/} ;;
    --slices) num_slices=$2 ;;
    --create-flags) create_flags=$2 ;;
    --ssh-flags) ssh_flags=$2 ;;
    --max-slices) max_slices=$2 ;;
    --poll-seconds) poll=$2 ;;
    --lines) lines=$2 ;;
    *) fail "unknown flag '$1'; \`launch_tpu.sh --help\` shows all; the experiment's own go after --" ;;
  esac
  shift 2
done
[ $# -eq 0 ] || shift

[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || fail "'$name' is no name for a slice: use a-z, 0-9 and -"
[ -n "$zone" ] || fail "no zone: pass --zone, for example us-west4-a"
[ -n "$project" ] || fail "no project: pass --project; \`gcloud projects list\` shows yours"
for number in "--poll-seconds $poll" "--max-slices $max_slices" "--lines $lines" "--slices $num_slices"; do
  [[ $number =~ ^--[a-z-]+\ [1-9][0-9]*$ ]] || fail "$number: pass a whole number above 0"
done
place=(--zone="$zone" --project="$project")
read -ra creation <<<"${place[*]} $create_flags"
read -ra login <<<"${place[*]} $ssh_flags"
# A host that is out of memory accepts a connection but never answers; without these, ssh would wait forever.
login+=(--ssh-flag="-oConnectTimeout=30 -oServerAliveInterval=30 -oServerAliveCountMax=4")
where="--zone $zone --project $project"
itself="$name $where"
[ "$num_slices" = 1 ] || itself+=" --slices $num_slices"
case $num_slices,$verb in
  1,* | *,study | *,status | *,logs | *,stop | *,delete) ;;
  *) fail "--slices is for study, status, logs, stop and delete; name one slice to $verb" ;;
esac
on_host='bash ~/bert-jax/tpu_host.sh'
exec 3>&1
check_account
case $verb in
  create) check_type; check_name_is_free; create ;;
  install) take_commit; install ;;
  run) check_run "$@"; run "$@" ;;
  watch) check_type; check_run "$@"; check_there_is_a_slice; take_commit_of_run; take_commit; watch "$@" ;;
  train) check_type; check_run "$@"; take_commit; check_name_is_free; train "$@" ;;
  study) check_type; check_run "$@"; take_commit; each study "$@" ;;
  status) each status ;;
  logs) each logs ;;
  stop) each on_hosts '' "$on_host stop" ;;
  delete) each delete ;;
esac
