#!/usr/bin/env bash
# Rents a TPU slice, installs a commit of this repository on its hosts, and trains there until the run has
# finished, on another slice when this one is taken away. docs/tpu.md explains it.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: launch_tpu.sh VERB NAME --type TYPE [FLAGS] [-- EXPERIMENT [OVERRIDES]]
For one run or study, watched from this shell; for more, see deploy/.
  create, delete       rent the slice NAME; give it back
  install              put a commit of the repository on all hosts
  run, stop            start `bert-jax pretrain EXPERIMENT`; save and end it
  watch                restart a lost run; delete the slice at the end
  train                create, install, run, watch
  study                the same for `bert-jax study STUDY`, if jobs are left
  status, logs         of slice and run; of each host the last --lines N (50)
flags:
  --zone, --project    or CLOUDSDK_COMPUTE_ZONE, CLOUDSDK_CORE_PROJECT
  --type TYPE          v2-8, v3-8, v4-32, v5litepod-16, ...: Cloud TPU API;
                       v5p-32, v6e-16, tpu7x-16, ...: Compute Engine
  --spot, --queued     may be preempted; wait for capacity (or: flex-start)
  --max-hours N        Google deletes the slice after so long (Compute Engine)
  --runtime-version V  runtime version or image family (by the type)
  --commit, --repository URL  what the hosts fetch (HEAD or the run's; `origin`)
  --setup COMMAND      makes venv/bin/bert-jax in the checkout (by uv and pip)
  --workdir, --corpus, --tasks  gs://BUCKET/... or a path on a shared disk
  --slices N           of a study: NAME-1 to NAME-N (1: NAME itself)
  --create-flags, --ssh-flags WORDS  for gcloud: "--network=N --internal-ips"
  --max-slices N       rent at most so many, one after the other (20)
  --stall-minutes N    restart after so long without a new metric (60)
  --delete-on-failure  delete the slice also if the run fails
  --poll-seconds N (30), --dry-run, --help
exit status: 0 finished; 2 bad input; 69 no progress, or gcloud does not answer;
75 no slice left, or it is stopped or silent: `watch` goes on; 130 Ctrl-C; else
that of the run
EOF
}

say() { echo "launch_tpu.sh: $*"; }
fail() { echo "launch_tpu.sh: error: $*" >&2; exit 2; }
quote() { printf ' %q' "$@"; }

# ask ASSUMED ARGUMENTS: runs gcloud; a dry run prints the call, and assumes the answer.
ask() {
  if [ -z "$dry_run" ]; then gcloud "${@:2}"; else echo "gcloud$(quote "${@:2}")" >&3 && printf %s "$1"; fi
}

check_run() {
  local directory model='' answer output=--workdir
  [ $# -gt 0 ] || fail "no experiment: name one after --, for example: -- base --seed 1"
  [ -n "$workdir" ] || fail "no work directory: pass --workdir gs://BUCKET/runs/NAME"
  [ -n "$corpus" ] || fail "no corpus: pass --corpus gs://BUCKET/corpora/NAME"
  [ "$command" = pretrain ] || [ -n "$tasks" ] || fail "no tasks: pass --tasks gs://BUCKET/tasks"
  if [[ " $*" =~ \ --(init|branch)[-_]from[=\ ]([^\ ]+) ]]; then model=${BASH_REMATCH[2]}; fi
  [[ $workdir,$model != gs://*,/* ]] || fail "'$model' is not on the hosts: copy it to the bucket"
  for directory in "$workdir" "$corpus" ${tasks:+"$tasks"} ${model:+"$model"}; do
    case $directory in
      /*) continue ;;
      gs://?*) ;;
      *) fail "'$directory' is not on the hosts: pass gs://BUCKET/... or the absolute path of a shared disk" ;;
    esac
    # The work directory need not exist yet, so only its bucket is looked at.
    [ "$directory" != "$workdir" ] || directory=$(cut -d / -f 1-3 <<<"$directory")
    answer=$(ask '' storage ls "$directory" 2>&1) || fail "cannot read $directory: ${answer##*$'\n'}"
  done
  command -v bert-jax >/dev/null || return 0
  [ "$command" = pretrain ] || output=--output
  answer=$(bert-jax "$command" "$@" "$output" "$workdir" --distributed --check-flags "$devices" 2>&1) || [ $? != 2 ] ||
    fail "the bert-jax of this machine refuses -- $*: ${answer##*error: }"
}

# Fetches the commit as a host would: without a password, a key, or this user's settings.
check_commit() {
  local probe changed fetched
  if [ -z "$commit" ] && [ "$verb" = watch ]; then # another slice gets what the run was last started with
    commit=$(ask '"commit": "HEAD"' storage cat "$workdir/config.json" 2>/dev/null |
      grep -oE '"commit": "[^"]+"' | tail -n 1 | cut -d '"' -f 4) ||
      fail "cannot read $workdir/config.json, which names the run's commit; pass --commit"
  elif [ -z "$commit" ]; then
    changed=$(git -C "$here" status --porcelain bert_jax data_pipeline experiments tpu_host.sh \
      setup.cfg pyproject.toml constraints.txt 2>/dev/null | sed 's/^...//' | paste -sd ' ') || true
    [ -z "$changed" ] || say "note: the hosts get HEAD, without what is not committed: $changed" >&2
  fi
  commit=$(git -C "$here" rev-parse --verify --quiet "${commit:-HEAD}^{commit}" 2>/dev/null || echo "$commit")
  [ -n "$commit" ] || fail "$here is no git checkout, whose commit the hosts would get; pass --commit"
  [ -n "$repository" ] || fail "$here has no remote \`origin\`, which the hosts would fetch; pass --repository"
  [[ $repository == *://* && $repository != file:* ]] || say "note: the hosts must see $shown too: it is a path, not an address" >&2
  [ -z "$dry_run" ] || return 0
  probe=$(mktemp -d) && git -C "$probe" init --quiet
  fetched=$(HOME=$probe GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true \
    GIT_SSH_COMMAND=false git -C "$probe" fetch --quiet --depth 1 "$repository" "$commit" 2>/dev/null &&
    git -C "$probe" rev-parse FETCH_HEAD) || fetched=''
  rm -rf "$probe"
  [ -n "$fetched" ] ||
    fail "the hosts cannot fetch $commit from '$shown': push it; if the repository is private, put a token that" \
      "may only read it into the address: --repository https://oauth2:TOKEN@..."
  commit=$fetched
}

# ---- supervision

# Looks after the run until it has finished; rents the first slice if there is none.
supervise() {
  local silent=0 fruitless=0 newest='' next made
  trap 'leave 130 "interrupted; a run goes on: \`watch\`, or \`study\`, with the same flags looks on"' INT
  [ "$rented" -gt 0 ] || rent "$@"
  while true; do
    look
    # When a host is taken away, the processes of the others die first: only a second look shows the reason.
    case $next in lost | stopped | ended | [0-9]*) sleep "$poll_seconds" && look ;; esac
    if [ "$next" = silent ]; then silent=$((silent + 1)); else silent=0; fi
    if [ "$next" = lost ] && nothing_left "$@"; then next=finished; fi
    case $next in
      finished) break ;;
      lost) say "the slice was taken away" && rent "$@" ;;
      stopped) leave 75 "somebody stopped the slice" ;;
      wait | going | silent) [ "$silent" -lt 20 ] || leave 75 "gcloud or the hosts do not answer" ;;
      *) start_again "$@" ;;
    esac
    sleep "$poll_seconds"
  done
  say "finished: $workdir holds the results"
  until delete; do sleep "$poll_seconds"; done
}

# Most faults pass: the run is started again in place, then on another slice. If it ends a third time without a new
# checkpoint, it would everywhere. Status 1 may be the fault of a chip: a first failed start is tried again.
start_again() {
  if [ "$made" = "$newest" ]; then fruitless=$((fruitless + 1)); else fruitless=1; fi
  newest=$made
  case $next,$fruitless in
    ended,1 | stalled,1 | 1,1)
      say "the run is to be started again in place: $next"
      { { on_hosts '' "$on_host end" || install; } && run "$@"; } || say "that failed; looking again"
      ;;
    ended,2 | stalled,2) say "the run is to be started on another slice: $next" && rent "$@" ;;
    ended,* | stalled,*) give_up 69 "three starts in a row made no new checkpoint" ;;
    *) give_up "$next" "the run ended with status $next and would again" ;;
  esac
}

# Rents a slice, in place of the last one if there was one, and starts the run. Where the first slice cannot be
# rented, or is there but the run does not start on it, the words are probably wrong.
rent() {
  [ "$rented" -lt "$max_slices" ] || leave 75 "used up $rented slices; $workdir keeps the last checkpoint"
  if { [ "$rented" = 0 ] || delete; } && create; then
    rented=$((rented + 1))
    say "slice $rented of at most $max_slices"
    if install && run "$@"; then return; fi
    sleep "$poll_seconds" && look # its state changes late, and the run may go on though a connection broke
    case $rented,$next in
      *,lost | *,stopped | *,silent | *,wait | *,going | *,finished) ;;
      1,*) give_up 1 "the run could not be started" ;;
    esac
    say "that failed; looking again"
  else
    [ "$rented" -gt 0 ] || leave 1 "no slice was created"
    for _ in {1..10}; do sleep "$poll_seconds"; done # there is seldom room for a new slice at once
  fi
}

study() {
  find_slice || return
  if [ -n "$state" ]; then rented=1
  elif nothing_left "$@"; then say "nothing is left to do of: $*" && return; fi
  supervise "$@"
}

leave() { say "$2. The slice, if there is one, stays and costs: launch_tpu.sh delete $itself" && exit "$1"; }

give_up() {
  logs || true
  if [ -n "$delete_on_failure" ] && delete; then say "$2" && exit "$1"; fi
  leave "$@"
}

# each VERB [WORDS]: for each of the slices at once; the status is that of one that failed.
each() {
  local base=$name number pid pids=() status=0
  if [ "$slices" = 1 ]; then "$@"; return; fi
  trap 'kill "${pids[@]}" 2>/dev/null; leave 130 interrupted' INT # jobs in the background do not see Ctrl-C
  for number in $(seq "$slices"); do
    (take_name "$base-$number" && "$@") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return $status
}

# Names the slice, and its parts on Compute Engine.
take_name() { name=$1 parts=$1-$zone itself="$1 --type $type --zone $zone --project $project"; }

# ---- the command line

case " ${*:1:2} " in *" -h "* | *" --help "*) usage && exit ;; esac
[ $# -ge 2 ] || fail "pass a verb and the name of a slice; \`launch_tpu.sh --help\` shows how"
verb=$1 name=$2 verbs="create install run watch train study status logs stop delete"
[[ " $verbs " = *" $verb "* ]] || fail "unknown verb '$verb'; valid: $verbs"
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
zone=${CLOUDSDK_COMPUTE_ZONE:-} project=${CLOUDSDK_CORE_PROJECT:-} type='' spot='' queued='' max_hours=''
runtime_version='' commit='' repository='' setup='bash tpu_host.sh setup' workdir='' corpus='' tasks='' slices=1
create_flags='' ssh_flags='' max_slices=20 stall_minutes=60 delete_on_failure='' poll_seconds=30 lines=50
dry_run='' command=pretrain rented=1 on_host='bash ~/bert-jax/tpu_host.sh'
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  variable=${1#--} value=yes
  case $1 in
    --help) usage && exit ;;
    --spot | --queued | --delete-on-failure | --dry-run) ;;
    --zone | --project | --type | --max-hours | --runtime-version | --commit | --repository | --setup | \
      --workdir | --corpus | --tasks | --slices | --create-flags | --ssh-flags | --max-slices | \
      --stall-minutes | --poll-seconds | --lines)
      [ $# -ge 2 ] || fail "$1: the value is missing"
      value=$2 && shift
      ;;
    *) fail "unknown flag '$1'; \`launch_tpu.sh --help\` shows all; the experiment's own go after --" ;;
  esac
  printf -v "${variable//-/_}" %s "$value"
  shift
done
[ $# -eq 0 ] || shift
# shellcheck source=tpu_slices.sh
source "$here/tpu_slices.sh"
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || fail "'$name' is no name for a slice: use a-z, 0-9 and -"
[ -n "$zone" ] || fail "no zone: pass --zone, for example us-west4-a"
[ -n "$project" ] || fail "no project: pass --project; \`gcloud projects list\` shows yours"
for number in slices max-slices stall-minutes poll-seconds lines ${max_hours:+max-hours}; do
  variable=${number//-/_}
  [[ ${!variable} =~ ^[1-9][0-9]*$ ]] || fail "--$number ${!variable}: pass a whole number above 0"
done
[[ $create_flags$ssh_flags != *$'\n'* ]] || fail "--create-flags and --ssh-flags: pass one line"
[ "$slices" = 1 ] || [[ $verb =~ ^(study|status|logs|stop|delete)$ ]] || fail "--slices: name one slice to $verb"
workdir=${workdir%/} corpus=${corpus%/} tasks=${tasks%/}
: "${repository:=$(git -C "$here" remote get-url origin 2>/dev/null || true)}"
repository=$(sed -E 's#^(ssh://)?git@([^:/]+)[:/]#https://\2/#' <<<"$repository") # the hosts have no key
shown=$(sed -E 's#//[^/]*@#//...@#' <<<"$repository")                             # without a token
[ -z "$dry_run" ] || repository=$shown
read_type
take_name "$name"
[ "$slices" = 1 ] || itself+=" --slices $slices"
exec 3>&1
case $verb in
  create) check_offer; check_name_is_free; create ;;
  install) check_commit; install ;;
  run) check_run "$@"; run "$@" ;;
  watch) check_offer; check_run "$@"; check_there_is_a_slice; check_commit; supervise "$@" ;;
  train) check_offer; check_run "$@"; check_commit; check_name_is_free; rented=0; supervise "$@" ;;
  study) command=study rented=0; check_offer; check_run "$@"; check_commit; each study "$@" ;;
  *) each "$verb" ;;
esac
