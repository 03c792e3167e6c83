#!/usr/bin/env bash
# Ablation of the training objective: 100 steps of mini.yaml, text and question read together, with the losses of tokens and
# vectors, with one kind of them, with unstripped answers (the paper's "w/o process"), and with NLTK's stopwords stripped, as in
# the paper. About 25 minutes on two CPU cores. DATA is the folder of training sets (finetune/recipes/bundled/mini.yaml), CORPORA that of
# evaluation sets; without it the shipped sets are used.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
data=${1:?usage: scripts/reproduce/objectives.sh DATA [OUT [CORPORA]]}
out=${2:-$root/runs/objectives}
corpora=${3:-}
[[ $data == /* ]] || data=$PWD/$data
[[ $out == /* ]] || out=$PWD/$out
[[ -z $corpora || $corpora == /* ]] || corpora=$PWD/$corpora
cd "$root"
train() { # name, settings
    [ -f "$out/$1/README.md" ] && return
    "$python" -m inbedder finetune mini --set data.folder="$data" --set training.max_steps=100 --set late_interaction=false \
        --set training.output="$out/$1" "${@:2}"
}
train both
train tokens --set objective.reencode_weight=0 --set objective.cosine_weight=0
train reencode --set objective.token_weight=0
train unstripped --set data.strip_stopwords=false
train nltk --set data.stopwords=nltk
"$python" -m inbedder_evaluation.sweeps models --model "$out/both" --model "$out/tokens" --model "$out/reencode" --model "$out/unstripped" \
    --model "$out/nltk" ${corpora:+--data "$corpora" --limit 600} -o "$out/objectives.json"
