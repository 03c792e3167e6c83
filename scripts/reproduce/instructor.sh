#!/usr/bin/env bash
# Evaluate INSTRUCTOR's published checkpoint on local data sets (folder DATA, see evaluation/README.md). Needs the model hub.
# INSTRUCTOR pools as in its own code (without the instruction) and gets its own instructions (prompts/represent.yaml). Its base, GTR,
# is the baseline. Text evaluation and prompt retrieval (table 9), levels of detail (section 4.3), robustness to paraphrases (4.2).
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:?usage: scripts/reproduce/instructor.sh DATA [OUT]}
out=${2:-runs/reproduce_instructor}
mkdir -p "$out"
inbedder evaluate --data "$data" --model hkunlp/instructor-large --baseline sentence-transformers/gtr-t5-large \
    --task texteval --task geoquery --task detail --task robustness --task STS -o "$out/results.json"
python -m inbedder_evaluation.sweeps robustness "$out/results.json" -o "$out/robustness.png"
