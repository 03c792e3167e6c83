#!/usr/bin/env bash
# Train the bundled decoder and pack it: scripts/make_small.sh DATA-FOLDER [SEED ...]   (an hour per seed on two quiet cores with bfloat16)
set -euo pipefail
cd "$(dirname "$0")/.."
data=$1
shift
seeds=("${@:-0}")
.venv/bin/inbedder models install small
for seed in "${seeds[@]}"; do
    .venv/bin/inbedder finetune finetune/recipes/small.yaml --set "data.folder=$data" --set "training.seed=$seed" \
        --set "training.output=runs/small-$seed" --set training.resume=true
done
.venv/bin/python scripts/pack_adapter.py "${seeds[@]/#/runs/small-}" inbedder/models/small --rank 64 --set max_new_tokens=10
