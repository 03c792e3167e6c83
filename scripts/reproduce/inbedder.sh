#!/usr/bin/env bash
# Evaluate the InBedder paper's checkpoints on its data sets. Needs the model hub, and a GPU with 24 GB for the 7B model.
# Instruction awareness and generic tasks (table 1), poolings (figure 2), filtered words (figure 3), layers (figure 6).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-runs/reproduce_inbedder}
mkdir -p "$out"
models=(BrandonZYW/llama-2-7b-InBedder BrandonZYW/opt-2.7b-InBedder BrandonZYW/opt-1.3b-InBedder BrandonZYW/roberta-large-InBedder)
inbedder evaluate --hub --protocol paper ${models[@]/#/--model } \
    --baseline intfloat/e5-large-v2 --baseline hkunlp/instructor-large -o "$out/results.json" --mteb-results "$out/mteb"
for model in "${models[@]}"; do
    name=${model##*/}
    # Causal LMs pool the states of sampled answers, as in the authors' runs; masked LMs sample none.
    python -m inbedder_evaluation.sweeps poolings --model "$model" --temperature 0.6 --top-p 0.9 --re-encoder intfloat/e5-large-v2 \
        -o "$out/$name-poolings.json"
    python -m inbedder_evaluation.sweeps layers --model "$model" -o "$out/$name-layers.json"
done
chat="--template llama-2-chat-inst --max-new-tokens 40"  # the authors' chat baselines
python -m inbedder_evaluation.sweeps poolings --model meta-llama/Llama-2-7b-chat-hf $chat --temperature 0.6 --top-p 0.9 \
    --re-encoder intfloat/e5-large-v2 -o "$out/Llama-2-7b-chat-hf-poolings.json"
python -m inbedder_evaluation.sweeps filter-words --model meta-llama/Llama-2-7b-chat-hf $chat -o "$out/Llama-2-7b-chat-hf-filter-words.json"
python -m inbedder_evaluation.sweeps filter-words --model facebook/opt-2.7b -o "$out/opt-2.7b-filter-words.json"
