#!/usr/bin/env bash
# The experiments behind the bundled default: a change each, 100 steps (6,400 rows) unless said, seed 0; then
# the default itself with three seeds. About 8 minutes a short run and 35 a long one on one CPU core; finished runs are not run again.
# DATA is the folder of training sets, EVAL that of corpora.
set -euo pipefail
cd "$(dirname "$0")/.."
usage="usage: scripts/reproduce_mini.sh DATA EVAL [OUT]"
data=${1:?$usage}
corpora=${2:?$usage}
out=${3:-runs/experiments}
first=finetune/recipes/experiments/first.yaml
second=finetune/recipes/experiments/second.yaml
third=finetune/recipes/experiments/third.yaml
mini=finetune/recipes/mini.yaml
models=()
train() { # name, recipe, settings
    models+=(--model "$out/$1")
    [ -f "$out/$1/README.md" ] || inbedder finetune "$2" --set data.folder="$data" --set training.output="$out/$1" "${@:3}"
}
short=(--set training.max_steps=100)
train first "$first" "${short[@]}"
train first-token-weight "$first" "${short[@]}" --set objective.token_weight=0.25
train first-one-mask "$first" "${short[@]}" --set mask_length=1
train first-full "$first" "${short[@]}" --set lora=null --set training.learning_rate=3e-4
train second "$second" "${short[@]}"
train second-rate-3e-3 "$second" "${short[@]}" --set training.learning_rate=3e-3
train second-full "$second" "${short[@]}" --set lora=null --set training.learning_rate=5e-4
train second-full-group-4 "$second" "${short[@]}" --set lora=null --set training.learning_rate=5e-4 --set training.group=4
for steps in 25 50 100; do
    train "third-$steps-steps" "$third" --set training.max_steps=$steps
done
for seed in 0 1 2; do
    train "third-seed-$seed" "$third" --set training.seed=$seed
done
train third-temperature-0.02 "$third" "${short[@]}" --set objective.temperature=0.02
train third-longer "$third" "${short[@]}" --set data.max_characters=1500 --set max_length=512
train third-two-epochs "$third" --set data.held_out=28438 --set training.epochs=2 # 3,200 rows twice
train third-frozen-head "$third" "${short[@]}" --set training.freeze="embeddings|cls"
train third-last-layer "$third" "${short[@]}" --set training.freeze="embeddings|cls|layer\\.[0-4]\\."
python scripts/one_wording.py "$third" "$data" "$out/one-wording"
train third-one-wording "$out/one-wording/recipe.yaml" --set data.folder="$out/one-wording/data" "${short[@]}"
for seed in 0 1 2; do
    train "mini-seed-$seed" "$mini" --set training.seed=$seed
done
python scripts/pack_adapter.py "$out"/mini-seed-{0,1,2} "$out/mini-average" --rank 96
models+=(--model "$out/mini-average")
python -m evaluation.sweeps models "${models[@]}" --data "$corpora" --limit 300 --task IntentEmotion --task InstructSTSB \
    --task "amazon_multidomain triplets" --task "airline_tweets triplets" -o "$out/mini_experiments.json"
