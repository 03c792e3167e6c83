#!/usr/bin/env bash
# The InBedder paper's checkpoints on its own sets: needs the model hub and, for the 7B model, a GPU with 24 GB.
# Instruction awareness and generic tasks (table 1), aggregations (figure 2), layers (figure 6), filtered words (figure 3).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-runs/reproduce_inbedder}
mkdir -p "$out"
models=(BrandonZYW/llama-2-7b-InBedder BrandonZYW/opt-2.7b-InBedder BrandonZYW/opt-1.3b-InBedder BrandonZYW/roberta-large-InBedder)
inbedder evaluate --hub --protocol paper ${models[@]/#/--model } \
    --baseline intfloat/e5-large-v2 --baseline hkunlp/instructor-large -o "$out/results.json" --mteb-results "$out/mteb"
for model in "${models[@]}"; do
    name=${model##*/}
    python -m evaluation.sweeps poolings --model "$model" -o "$out/$name-poolings.json"
    python -m evaluation.sweeps layers --model "$model" -o "$out/$name-layers.json"
done
for model in meta-llama/Llama-2-7b-chat-hf facebook/opt-2.7b; do
    python -m evaluation.sweeps filter-words --model "$model" -o "$out/${model##*/}-filter-words.json"
done
