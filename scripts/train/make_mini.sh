#!/usr/bin/env bash
# Train the bundled model `mini` from its recipes, mini.yaml to mini-thirteenth.yaml, with means of weights between the stages:
#   mini                    a teacher, from three seeds
#   mini-late-interaction   two seeds, then mini-distilled to mini-fifth
#   mini-sixth              four runs, with the model of the stages before as teacher
#   mini-seventh            two runs; mini-eighth: six runs over long texts
#   mini-ninth and later    training of the low-rank adapter itself
# About eight hours on 2 CPU cores. DATA is the folder of training sets; OUT replaces runs/mini-adapter.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:?usage: scripts/train/make_mini.sh DATA [OUT]}
train() { # recipe, output, settings
    [ -f "$2/README.md" ] || inbedder finetune "finetune/recipes/$1.yaml" --set data.folder="$data" --set training.output="$2" "${@:3}"
}
mean() { # output, models; a model that is named twice counts twice
    [ -d "$1" ] || python scripts/train/pack_adapter.py "${@:2}" "$1" --whole
}
for seed in 0 1 2; do train mini "runs/mini-$seed" --set training.seed=$seed; done
[ -d runs/mini-teacher ] || python scripts/train/pack_adapter.py runs/mini-{0,1,2} runs/mini-teacher --rank 96
for seed in 0 1; do train mini-late-interaction "runs/mini-late-interaction-$seed" --set training.seed=$seed; done
mean runs/mini-late-interaction runs/mini-late-interaction-{0,1}
train mini-distilled runs/mini-distilled
train mini-third runs/mini-third
mean runs/mini-mean-1 runs/mini-late-interaction-{0,1} runs/mini-third{,,}
train mini-fourth runs/mini-fourth
mean runs/mini-mean-2 runs/mini-late-interaction-{0,0,1,1} runs/mini-third{,,} runs/mini-fourth{,,}
train mini-fifth runs/mini-fifth
pack() { python scripts/train/pack_adapter.py "$@" --rank 96 --base sentence-transformers/all-MiniLM-L6-v2 --set base_encoder=all-MiniLM-L6-v2; }
pack runs/mini-mean-2 runs/mini-fifth runs/mini-before
# Four runs of stage 6. The first three have fewer complaints; the first two ask for scenarios as domains, and the first has no aspects of services (caps of one row).
fewer=(--set data.sources.0.cap=4500 --set data.sources.1.cap=2000 --set training.seed=6)
words='["What is the domain of the request?", "Which service is it about?", "What area of life does it belong to?", "Which scenario does it belong to?", "What kind of service is needed?", "domain",
  "Which department should handle it?", "What field is the message about?", "Name the area of the message.", "Which of the helper'"'"'s functions is wanted?", "Say what general subject the user raises.", "What sort of task is it?"]'
domains=(--set data.sources.12.cap=1 --set "data.sources.11.instructions=$words" --set "data.sources.13.instructions=$words")
train mini-sixth runs/mini-sixth-1 "${fewer[@]}" "${domains[@]}" --set data.sources.1.cap=2500 --set data.sources.8.cap=1 --set data.sources.9.cap=1
train mini-sixth runs/mini-sixth-2 "${fewer[@]}" "${domains[@]}" --set data.sources.1.teacher_instruction=null
train mini-sixth runs/mini-sixth-3 "${fewer[@]}" --set training.max_steps=240
train mini-sixth runs/mini-sixth-4
pack runs/mini-sixth-{1,2,3,4} runs/mini-before runs/mini-sixth
train mini-seventh runs/mini-seventh-1
train mini-seventh runs/mini-seventh-2 --set data.seed=10 --set training.seed=10 --set data.sources.6.cap=1900
pack runs/mini-seventh-{1,1,2} runs/mini-sixth runs/mini-seven
# Six runs of stage 8 over long texts, each from the one before. The first five have no rows that the teacher answers (caps of one row).
eighth() { # number, initial model, seed, steps, rate, weight of the teacher, "source=cap ..."
    local caps=() pair
    for pair in $7; do caps+=(--set "data.sources.${pair%=*}.cap=${pair#*=}"); done
    train mini-eighth "runs/mini-eighth-$1" --set model="$2" --set data.seed="$3" --set training.seed="$3" --set training.max_steps="$4" \
        --set training.learning_rate="$5" --set objective.teacher_weight="$6" "${caps[@]}"
}
none=$(printf '%s=1 ' {41..54})
bought="2=900 3=900"
opinions="0=1400 1=1100 2=1500 3=1400 4=1400 5=800 10=900 12=1000 13=1000"
eighth 1 runs/mini-seven 12 240 2.0e-4 5 "$none"
eighth 2 runs/mini-eighth-1 13 240 1.5e-4 5 "$none $bought"
eighth 3 runs/mini-eighth-2 13 300 4.0e-4 20 "$none $bought"
eighth 4 runs/mini-eighth-3 14 300 3.0e-4 20 "$none 2=1400 3=1200 4=1000 5=600 12=1500 13=1200"
eighth 5 runs/mini-eighth-4 15 300 2.5e-4 20 "$none $opinions"
eighth 6 runs/mini-eighth-5 16 340 2.5e-4 20 "$opinions 19=800 20=900"
pack runs/mini-eighth-{6,6,6,6} runs/mini-seven runs/mini-cut
# The adapter itself is trained on the rows of the sixth run, then on more wordings, then on composed abstracts.
caps=()
for pair in $opinions 19=800 20=900; do caps+=(--set "data.sources.${pair%=*}.cap=${pair#*=}"); done
train mini-ninth runs/mini-ninth "${caps[@]}"
pack runs/mini-ninth runs/mini-cut runs/mini-nine
train mini-tenth runs/mini-tenth "${caps[@]}" --set data.sources.29.weight=4
pack runs/mini-tenth runs/mini-ten
train mini-eleventh runs/mini-eleventh
pack runs/mini-eleventh runs/mini-eleven
# Once more, with "@none" as teacher instruction of events, and more short lines.
more=(--set "data.sources.19.teacher_instruction='@none'" --set "data.sources.20.teacher_instruction='@none'")
for pair in 0=2600 1=2000 19=2200 20=2200 22=800 23=600 24=800 25=500 59=400 60=400 61=1000 62=800 63=400 64=800 65=800 66=800 67=700 68=700 69=700; do
    more+=(--set "data.sources.${pair%=*}.cap=${pair#*=}")
done
train mini-eleventh runs/mini-eleventh-2 --set lora.init_adapter=runs/mini-eleven --set training.seed=20 --set training.max_steps=200 --set training.learning_rate=2.5e-4 "${more[@]}"
pack runs/mini-eleventh-2 runs/mini-twelve
pack runs/mini-twelve runs/mini-twelve runs/mini-eleven runs/mini-both
# Titles, twice; the second run has more titles and events. Then more wordings of a question about the topic.
train mini-twelfth runs/mini-twelfth
pack runs/mini-twelfth runs/mini-thirteen
pack runs/mini-thirteen runs/mini-both runs/mini-fourteen
more=()
for pair in 19=3200 20=3200 70=2500 71=2500 75=1 76=1; do more+=(--set "data.sources.${pair%=*}.cap=${pair#*=}"); done
train mini-twelfth runs/mini-twelfth-2 --set lora.init_adapter=runs/mini-fourteen --set training.seed=22 "${more[@]}"
pack runs/mini-twelfth-2 runs/mini-fifteen
pack runs/mini-fifteen runs/mini-fourteen runs/mini-half
train mini-thirteenth runs/mini-thirteenth "${more[@]}"
pack runs/mini-thirteenth runs/mini-sixteen
pack runs/mini-sixteen runs/mini-both "${2:-runs/mini-adapter}" --set add_generic=true
