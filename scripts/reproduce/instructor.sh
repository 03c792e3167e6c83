#!/usr/bin/env bash
# INSTRUCTOR's measurements on local sets (folder DATA, see evaluation/README.md) with its published checkpoint: needs the model hub.
# INSTRUCTOR is read as its own code reads it (the instruction attended to and not pooled) and asked in its own words
# (prompts/represent.yaml); its base, GTR, is the baseline. Text evaluation and prompt retrieval (table 9), levels of detail (4.3), the reproduction's gibberish, paraphrase spread (4.2).
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:?usage: scripts/reproduce/instructor.sh DATA [OUT]}
out=${2:-runs/reproduce_instructor}
mkdir -p "$out"
inbedder evaluate --data "$data" --model hkunlp/instructor-large --baseline sentence-transformers/gtr-t5-large \
    --task texteval --task geoquery --task detail --task robustness --task STS -o "$out/results.json"
python -m inbedder_evaluation.sweeps robustness "$out/results.json" -o "$out/robustness.png"
