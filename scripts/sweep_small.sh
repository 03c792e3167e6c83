#!/usr/bin/env bash
# What the training of the bundled decoder turns on, one change per run: 40 steps of 48 short rows from the base (finetune/recipes/experiments/small-sweep.yaml),
# seed 0 unless named. A few minutes each on two CPU cores; finished runs are not run again. DATA is the folder of training
# sets, MPNET a folder of all-mpnet-base-v2 (where it is left out, so is that run).
set -euo pipefail
cd "$(dirname "$0")/.."
usage="usage: scripts/sweep_small.sh DATA [MPNET]"
data=${1:?$usage}
mpnet=${2:-}
recipe=finetune/recipes/experiments/small-sweep.yaml
command=(inbedder)
train() { # name, settings
    local run="runs/sweep/$1"
    [ -f "$run/README.md" ] || "${command[@]}" finetune "$recipe" --set data.folder="$data" --set training.output="$run" "${@:2}"
    "${command[@]}" evaluate --model "$run" --task written -o finetune/results/small_sweep.json
}
train base
train seed-1 --set training.seed=1
train seed-2 --set training.seed=2
train temperature-0.02 --set objective.temperature=0.02
train rate-3e-3 --set training.learning_rate=3.0e-3
train rate-3e-3-seed-1 --set training.learning_rate=3.0e-3 --set training.seed=1
train rate-3e-3-seed-2 --set training.learning_rate=3.0e-3 --set training.seed=2
train rate-3e-4 --set training.learning_rate=3.0e-4
train full --set lora=null --set training.learning_rate=1.0e-4
train avg-gen --set objective.pooling=avg-gen
train with-stopwords --set data.strip_stopwords=false
train temperature-0.1 --set objective.temperature=0.1
shorter=(--set training.batch_size=12 --set training.max_steps=160 --set training.learning_rate=5.0e-4)
train negatives-of-12 "${shorter[@]}"
train negatives-of-12-seed-1 "${shorter[@]}" --set training.seed=1
train negatives-of-12-seed-2 "${shorter[@]}" --set training.seed=2
train both-groups --set training.share_texts=false
train group-1 --set training.group=1 --set training.share_texts=false
train rank-16 --set lora.r=16 --set lora.alpha=32
train all-blocks-rank-32 --set lora.r=32 --set lora.alpha=64 --set 'lora.target_modules=.*_proj'
train vectors-alone --set objective.token_weight=0
train tokens-alone --set objective.reencode_weight=0
train rows-960 --set training.max_steps=20
[ -z "$mpnet" ] || train mpnet --set objective.reencoder="$mpnet"
command=(python scripts/both_ways.py)
train both-ways
