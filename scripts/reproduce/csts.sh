#!/usr/bin/env bash
# Reproduce the tables and figures that csts.yaml lists; --dry-run prints the commands.
. "$(dirname "$0")/find_python.sh"
exec "$python" "$(dirname "$0")/run_paper.py" csts "$@"
