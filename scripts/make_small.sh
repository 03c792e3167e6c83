#!/usr/bin/env bash
# Train the bundled decoder in three stretches and pack it: scripts/make_small.sh DATA-FOLDER   (three hours on two quiet cores with bfloat16)
set -euo pipefail
cd "$(dirname "$0")/.."
data=$1
finetune() { .venv/bin/inbedder finetune "$@" --set "data.folder=$data" --set training.resume=true; }
.venv/bin/inbedder models install small
finetune finetune/recipes/small.yaml --set training.output=runs/small-first
finetune finetune/recipes/small-second.yaml --set training.seed=1 --set training.output=runs/small-second
# more about feelings, which the second stretch lost a little of
finetune finetune/recipes/small-second.yaml --set training.seed=2 --set training.output=runs/small-third --set lora.start=runs/small-second \
    --set training.learning_rate=5.0e-4 --set training.max_steps=360 --set data.sources.8.cap=7000 --set data.sources.5.cap=7000 \
    --set data.sources.21.cap=1000 --set data.sources.23.cap=3600 --set data.sources.27.cap=1800
.venv/bin/python scripts/pack_adapter.py runs/small-third inbedder/models/small --base SmolLM2-135M-Instruct \
    --set max_new_tokens=10 --set mask_length=null --set subtract_instruction=true
