#!/usr/bin/env bash
# The bundled default from its recipes: a teacher (three seeds of mini.yaml), two seeds that read text and question apart, and
# four stretches, three of them under the teacher, with means of weights between them, and a last one (three seeds) under what these
# gave. About four hours on 2 CPU cores.
# DATA is the folder of training sets; OUT takes the place of inbedder/models/mini.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:?usage: scripts/make_mini.sh DATA [OUT]}
train() { # recipe, output, settings
    [ -f "$2/README.md" ] || inbedder finetune "finetune/recipes/$1.yaml" --set data.folder="$data" --set training.output="$2" "${@:3}"
}
mean() { # output, models; one that stands twice counts twice
    [ -d "$1" ] || python scripts/pack_adapter.py "${@:2}" "$1" --whole
}
for seed in 0 1 2; do train mini "runs/mini-$seed" --set training.seed=$seed; done
[ -d runs/mini-teacher ] || python scripts/pack_adapter.py runs/mini-{0,1,2} runs/mini-teacher --rank 96
for seed in 0 1; do train mini-apart "runs/mini-apart-$seed" --set training.seed=$seed; done
mean runs/mini-apart runs/mini-apart-{0,1}
train mini-taught runs/mini-taught
train mini-third runs/mini-third
mean runs/mini-mean-1 runs/mini-apart-{0,1} runs/mini-third{,,}
train mini-fourth runs/mini-fourth
mean runs/mini-mean-2 runs/mini-apart-{0,0,1,1} runs/mini-third{,,} runs/mini-fourth{,,}
train mini-fifth runs/mini-fifth
pack() { python scripts/pack_adapter.py "$@" --rank 96 --base sentence-transformers/all-MiniLM-L6-v2 --set generic_base=all-MiniLM-L6-v2; }
pack runs/mini-mean-2 runs/mini-fifth runs/mini-before
for seed in 6 7 8; do train mini-sixth "runs/mini-sixth-$seed" --set training.seed=$seed; done
pack runs/mini-sixth-{6,7,8} runs/mini-before "${2:-runs/mini-adapter}"
