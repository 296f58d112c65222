#!/usr/bin/env bash
# The gate of action.yml: its inputs are variables. Writes the tables to the summary of the job.
set -euo pipefail

words=()
while IFS= read -r line; do
  [[ -n "$line" ]] || continue
  # Without mapfile, which bash on macOS does not have.
  while IFS= read -r file; do
    words+=("$file")
  done < <(compgen -G "$line" || printf '%s\n' "$line")
done <<< "$MODELS"
[[ -z "${BASELINE:-}" ]] || words+=("--baseline=$BASELINE")
[[ -z "${BUDGET:-}" ]] || words+=("--budget=$BUDGET")
[[ -z "${SPACES:-}" ]] || words+=("--spaces=$SPACES")
[[ -z "${TARGET:-}" ]] || words+=("--target=$TARGET")
while IFS= read -r line; do
  [[ -z "$line" ]] || words+=("$line")
done <<< "${ARGUMENTS:-}"

markdown="$RUNNER_TEMP/arenaplan-gate.md"
echo "markdown=$markdown" >> "$GITHUB_OUTPUT"
status=0
arenaplan gate "${words[@]}" --markdown --junit "$JUNIT" > "$markdown" 2> "$markdown.err" || status=$?
cat "$markdown"
cat "$markdown.err" >&2
if [[ ! -s "$markdown" ]]; then
  # No table: the reason is on stderr.
  { echo '```'; cat "$markdown.err"; echo '```'; } > "$markdown"
fi
cat "$markdown" >> "$GITHUB_STEP_SUMMARY"
exit "$status"
