#!/usr/bin/env bash
# The bundled default from its recipes: a teacher (three seeds of mini.yaml), two seeds that read text and question apart, and three
# stretches under the teacher, the last as an adapter. About three hours on 2 CPU cores.
# DATA is the folder of training sets; OUT takes the place of inbedder/models/mini.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:?usage: scripts/make_mini.sh DATA [OUT]}
train() { # recipe, output, settings
    [ -f "$2/README.md" ] || inbedder finetune "finetune/recipes/$1.yaml" --set data.folder="$data" --set training.output="$2" "${@:3}"
}
for seed in 0 1 2; do train mini "runs/mini-$seed" --set training.seed=$seed; done
[ -d runs/mini-teacher ] || python scripts/pack_adapter.py runs/mini-{0,1,2} runs/mini-teacher --rank 96
for seed in 0 1; do train mini-apart "runs/mini-apart-$seed" --set training.seed=$seed; done
[ -d runs/mini-apart ] || python scripts/pack_adapter.py runs/mini-apart-{0,1} runs/mini-apart --whole
train mini-taught runs/mini-taught
train mini-third runs/mini-third
[ -d runs/mini-mean ] || python scripts/pack_adapter.py runs/mini-apart-{0,1} runs/mini-third{,,} runs/mini-mean --whole # 0.4 and 0.6
train mini-last runs/mini-last
python scripts/pack_adapter.py runs/mini-last "${2:-runs/mini-adapter}" --rank 96 --base sentence-transformers/all-MiniLM-L6-v2 \
    --set generic_base=all-MiniLM-L6-v2
