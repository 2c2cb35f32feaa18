#!/usr/bin/env bash
# One Source through a distributed deployment: captured at one API, flushed at the other, followed at the first.
#
#   make distributed                       # in another terminal
#   docs/examples/distributed-flow.sh      # API_1, API_2 and TOKEN say where, and as whom
set -euo pipefail
API_1=${API_1:-http://127.0.0.1:8001} API_2=${API_2:-http://127.0.0.1:8002}
SCOPE=${SCOPE:-distributed-flow-$(date +%s)}
headers=(-H 'Content-Type: application/json')
if [ -n "${TOKEN:-}" ]; then headers+=(-H "Authorization: Bearer $TOKEN"); fi

ask() { curl --silent --show-error --fail-with-body --max-time 30 "${headers[@]}" "$@"; }
member() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -n 1; }

for api in "$API_1" "$API_2"; do
  echo "$api is $(ask "$api/health/ready" | member status)"
done

ask "$API_1/v1/sources/content" \
  -d "{\"scope_id\": \"$SCOPE\", \"source_id\": \"source-1\", \"content\": \"user: I prefer durable work that survives a restart.\"}" >/dev/null
echo "captured at $API_1"

operation=$(ask "$API_2/v1/memory/flush" -H 'Prefer: respond-async' -d "{\"scope_id\": \"$SCOPE\"}" | member operation_id)
echo "accepted at $API_2: operation $operation"

for _ in $(seq 1 300); do
  status=$(ask "$API_1/v1/operations/$operation" | member status)
  case $status in
    succeeded) break ;;
    failed | cancelled) echo "the operation ended as $status" >&2; exit 1 ;;
  esac
  sleep 0.2
done
if [ "$status" != succeeded ]; then
  echo "the operation is still $status after a minute" >&2
  exit 1
fi
echo "followed at $API_1: $status"
ask "$API_2/v1/memory/entries/list" -d "{\"scope_id\": \"$SCOPE\"}"
echo
ask "$API_1/metrics" | grep -E '^powercontext_(runtime_members|work_queue_depth).* [1-9]' || true
