# shellcheck shell=bash disable=SC2154,SC2034 # launch_tpu.sh, which reads this file, shares its variables
# The two APIs by which Google rents TPU slices. For each there are functions that tell what a zone has, create
# the slice `name`, tell its state (nothing: there is none), run a command on all its hosts, and delete it.

# Sets what follows from the flags: the API, the image, the number of devices as jax counts them and, on Compute
# Engine, the hosts and their topology.
read_type() {
  local chips=${type##*-} sizes="2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16"
  [ -n "$type" ] || fail "no type: pass --type, for example v5litepod-16"
  [[ $type =~ ^(v[234]|v5litepod|v5p|v6e|tpu7x)-[1-9][0-9]*$ ]] ||
    fail "unknown --type '$type'; known: v2-N, v3-N, v4-N, v5litepod-N, v5p-N, v6e-N, tpu7x-N"
  api=gce image=ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e hosts='' machine='' topology='' devices=$chips
  case $type in
    v[234]-*) api=tpu image=tpu-ubuntu2204-base ;;
    v5litepod-*) api=tpu image=v2-alpha-tpuv5-lite ;;
    v6e-[18]) machine=ct6e-standard-${chips}t hosts=1 sizes=$chips ;;
    v6e-*) machine=ct6e-standard-4t sizes="2x2 4x4 4x8 8x8 8x16 16x16" ;;
    v5p-*) machine=ct5p-hightpu-4t ;;
    tpu7x-*) machine=tpu7x-standard-4t image=ubuntu-accel-2404-amd64-tpu-tpu7x ;;
  esac
  case $type in v4-* | v5p-*) devices=$((chips / 2)) ;; esac # a chip is one device, and has two cores
  case $type in
    v4-*[13579] | v5p-*[13579] | tpu7x-*[13579])
      fail "--type $type: the number counts cores, two a chip, so it is even"
      ;;
    v5p-* | tpu7x-*) chips=$((chips / 2)) ;;
  esac
  image=${runtime_version:-$image}
  place=(--zone="$zone" --project="$project") zones=(--zones="$zone" --project="$project")
  region=(--region="${zone%-*}" --project="$project")
  read -ra creation <<<"--project=$project $create_flags"
  # A host that is out of memory accepts a connection but never answers; without these, ssh would wait forever.
  read -ra login <<<"${place[*]} $ssh_flags"
  login+=(--ssh-flag="-oConnectTimeout=30 -oServerAliveInterval=30 -oServerAliveCountMax=4")
  if [ "$api" = tpu ]; then
    [ -z "$max_hours" ] || fail "--max-hours: launch_tpu.sh can set no limit for $type, which it rents through the Cloud TPU API"
    return
  fi
  for topology in $sizes 0; do
    [ $((${topology//x/*})) != "$chips" ] || break
  done
  [ "$topology" != 0 ] || fail "no slice of $type has $chips chips; there are: $sizes"
  hosts=${hosts:-$((chips / 4))}
  [ -z "$queued" ] || [ -n "$max_hours" ] || fail "--queued is flex-start for $type: pass --max-hours, at most 168"
  [ -z "$queued" ] || [ -z "$spot" ] || fail "--queued is flex-start for $type: leave out --spot"
}

# ---- The Cloud TPU API: v2 to v5e

tpu_offers() { ask "$type" compute tpus tpu-vm accelerator-types list "${place[@]}" --format='value(type)'; }
tpu_list() { ask "$1" compute tpus "$2" list "${place[@]}" --filter="name ~ /$name\$" --format="value($3)"; }
tpu_request() { tpu_list '' queued-resources state.state; }
tpu_ssh() { ask "$1" compute tpus tpu-vm ssh "$name" "${login[@]}" --worker=all --command="$2"; }

tpu_state() {
  local vm request
  vm=$(tpu_list READY tpu-vm state) && request=$(tpu_request) && echo "${vm:-$request}"
}

tpu_create() {
  local words=("$name" --zone="$zone" "${creation[@]}" --accelerator-type="$type" ${spot:+--spot})
  if [ -n "$queued" ]; then
    ask '' compute tpus queued-resources create "${words[@]}" --node-id="$name" --runtime-version="$image"
  else
    ask '' compute tpus tpu-vm create "${words[@]}" --version="$image"
  fi
}

tpu_delete() {
  local request
  request=$(tpu_request) || return
  if [ -n "$request" ]; then ask '' compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet
  else ask '' compute tpus tpu-vm delete "$name" "${place[@]}" --quiet; fi
}

# ---- Compute Engine: a managed instance group, its template and, for several hosts, its workload policy

gce_offers() {
  ask "$machine" compute machine-types list "${zones[@]}" --filter='name ~ "^(ct|tpu)"' --format='value(name)'
}

gce_vms() { ask "$1" compute instance-groups managed list-instances "$name" "${place[@]}" --format="value($2)"; }

# Google deletes the VMs that it takes away, so that one which is stopped was stopped by somebody.
gce_state() {
  local group vms fields='instanceStatus,currentAction,lastAttempt.errors.errors[0].code'
  group=$(ask "$name" compute instance-groups managed list "${zones[@]}" --filter="name=$name" \
    --format='value(name)') || return
  [ -n "$group" ] || return 0
  vms=$(gce_vms "$(yes RUNNING | head -n "$hosts")" "$fields") || return
  case $vms in
    *TERMINATED* | *STOPPED* | *SUSPEND*) echo STOPPED ;;
    *PENDING* | *CREATING* | *PROVISIONING* | *STAGING*) echo "CREATING $(cut -f 3 <<<"$vms" | sort -u | xargs)" ;;
    *) if [ "$(grep -c ^RUNNING <<<"$vms")" = "$hosts" ]; then echo READY; else echo PREEMPTED; fi ;;
  esac
}

gce_create() {
  local group=("${place[@]}" --size="$hosts" --template="$parts" --default-action-on-vm-failure=do-nothing)
  local template=(--machine-type="$machine" --image-project=ubuntu-os-accelerator-images
    --image-family="$image" --boot-disk-size=200GB --scopes=cloud-platform --maintenance-policy=TERMINATE)
  [ -z "$spot" ] || template+=(--provisioning-model=SPOT)
  [ -z "$queued" ] || template+=(--provisioning-model=FLEX_START --reservation-affinity=none)
  [ -z "$spot$max_hours" ] || template+=(--instance-termination-action=DELETE)
  [ -z "$max_hours" ] || template+=(--max-run-duration="${max_hours}h")
  if [ "$hosts" -gt 1 ]; then
    group+=(--workload-policy="projects/$project/regions/${zone%-*}/resourcePolicies/$parts")
    ask '' compute resource-policies create workload-policy "$parts" "${region[@]}" --type=HIGH_THROUGHPUT \
      --accelerator-topology="$topology" || { gce_delete_parts && return 1; }
  fi
  # In bulk mode all hosts come at once, or wait for room: a slice has no use for some of them.
  ask '' compute instance-templates create "$parts" "${template[@]}" "${creation[@]}" &&
    ask '' compute instance-groups managed create "$name" "${group[@]}" --target-size-policy-mode=bulk && return
  gce_delete_parts
  return 1
}

gce_ssh() {
  local vm vms pid pids=() status=0
  vms=$(gce_vms "$name-0" name) && [ -n "$vms" ] || return
  for vm in $vms; do
    ask "$1" compute ssh "$vm" "${login[@]}" --command="$2" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return $status
}

# The parts cost nothing, but hold their name.
gce_delete_parts() {
  ask '' compute instance-templates delete "$parts" --project="$project" --quiet || true
  [ "$hosts" = 1 ] || ask '' compute resource-policies delete "$parts" "${region[@]}" --quiet || true
}
gce_delete() { ask '' compute instance-groups managed delete "$name" "${place[@]}" --quiet && gce_delete_parts; }

# ---- either API

on_hosts() { "${api}_ssh" "$@"; }

check_offer() {
  local offered
  [ -n "$(ask me auth list --filter=status:ACTIVE --format='value(account)' 2>/dev/null)" ] ||
    fail "gcloud is not installed, or not logged in; run: gcloud auth login"
  offered=$("${api}_offers" 2>&1) || fail "cannot list the types of zone $zone: ${offered##*$'\n'}"
  grep -qxF "${machine:-$type}" <<<"$offered" ||
    fail "zone $zone has no ${machine:-$type}; it has: $(sort -V <<<"$offered" | xargs)"
}

# Sets `state`. That gcloud does not answer does not mean that there is no slice.
find_slice() {
  state=$("${api}_state") || {
    say "error: gcloud does not say whether $name is there; if it is, it costs" >&2
    return 69
  }
}

check_name_is_free() {
  find_slice
  [ -z "$state" ] || [ -n "$dry_run" ] ||
    fail "$name is already in use in $zone ($state); choose another name, or: launch_tpu.sh delete $itself"
}

check_there_is_a_slice() {
  find_slice
  [ -n "$state" ] || fail "there is no slice $name in $zone of project $project; \`train\` with the same words" \
    "rents one and resumes from the newest checkpoint in $workdir"
}

create() {
  local before=none
  say "creating $name: $type in $zone${spot:+, spot}${queued:+, queued}"
  "${api}_create" || return
  while true; do
    state=$("${api}_state") || state="WAITING for gcloud"
    [ "$state" = "$before" ] || say "$name is ${state:-gone}"
    case $state in
      READY) return ;;
      ACCEPTED | ACTIVE | CREATING* | PROVISIONING | WAITING*) ;;
      "$before") return 1 ;; # a second look shows that it stays so
    esac
    before=$state
    sleep "$poll_seconds"
  done
}

delete() {
  find_slice || return
  if [ -z "$state" ] && [ "$verb" = delete ]; then
    # A create that was interrupted may have left some.
    [ "$api" != gce ] || gce_delete_parts 2>/dev/null
    fail "there is no slice $name in $zone of project $project"
  fi
  [ -z "$state" ] || { say "deleting $name" && "${api}_delete"; }
}

# ---- on the hosts

install() {
  local mark=../bert-jax-run/installed steps
  say "installing $commit on $name"
  steps="mkdir -p ~/bert-jax ~/bert-jax-run && cd ~/bert-jax && rm -f $mark && git init --quiet"
  steps+=" && git fetch --quiet --depth 1$(quote "$repository" "$commit")"
  on_hosts '' "$steps && git checkout --quiet --force FETCH_HEAD && { $setup; } && touch $mark"
}

run() {
  local words
  words=$(quote "$command" "$workdir" "$corpus" "$tasks" "$@")
  say "starting the run in $workdir"
  # The copies take some hosts longer than others, which would wait for them in the run.
  on_hosts '' "$on_host fetch$words" && on_hosts '' "$on_host run$words"
}

logs() { on_hosts '' "$on_host logs $lines"; }
stop() { on_hosts '' "$on_host stop"; }

status() {
  find_slice || return
  say "slice $name: ${state:-none}"
  [ "$state" != READY ] || on_hosts '' "$on_host state $stall_minutes | cut -d ' ' -f 1-2; $on_host logs 1"
}

# Sets `next` to wait, silent, stopped, lost (there is no slice), or what the worst of the hosts says of the run:
# the status that it failed with, ended (it may go on), going, stalled, finished. Sets `made` to its checkpoints.
look() {
  local answer said
  made=''
  state=$("${api}_state") || state=silent
  case $state in
    READY) ;;
    silent) next=silent && return ;;
    STOP*) next=stopped && return ;;
    CREATING* | STARTING | RE*ING | ACCEPTED | PROVISIONING | WAITING*) next='wait' && return ;;
    *) next=lost && return ;;
  esac
  answer=$(on_hosts 'run: finished' "$on_host state $stall_minutes || echo run: ended" 2>&1) || {
    say "the hosts do not answer: $(grep -vE '^SSH: |^Retrying|^$' <<<"$answer" | head -n 1)" >&2
    next=silent && return
  }
  for said in '[0-9]+' ended going stalled finished; do
    if grep -qE "^run: $said" <<<"$answer"; then break; fi
  done
  read -r _ next made <<<"$(grep -m 1 -E "^run: $said" <<<"$answer")" || true
  [ -n "$next" ] || next=silent
}

# Whether the workers of a study have noted that nothing is left to do of just these words. Ends if jobs failed.
nothing_left() {
  local noted failed
  [ "$command" = study ] || return
  noted=$(ask '' storage cat "$workdir/progress.json" 2>/dev/null) || return
  grep -qF -e "\"command\": \"$* --output " <<<"$noted" && grep -q '"left": 0$' <<<"$noted" || return
  failed=$(grep -o '"failed": [1-9][0-9]*' <<<"$noted") || return 0
  # With --retry the failed jobs are left, until a slice has tried them.
  [[ $rented -gt 0 || " $* " != *" --retry "* ]] || return
  leave 1 "${failed##* } jobs failed and nothing else is left; --retry runs them again"
}
