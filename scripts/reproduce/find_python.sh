# Sourced by the scripts of this folder: set `root` to the repository, and `python` to the first Python that has inbedder_finetune, of
# $PYTHON or the active one, that of .venv, and python3.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for python in "${PYTHON:-python}" "$root/.venv/bin/python" python3 ""; do
    "${python:-false}" -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("inbedder_finetune"))' 2>/dev/null && break
done
if [ -z "$python" ]; then
    echo "error: no Python here has inbedder_finetune. Run in the repository: pip install '.[mini]' ./finetune './evaluation[mteb]'" >&2
    exit 1
fi
