#!/bin/bash
#SBATCH --job-name=cafenet-workers
#SBATCH --array=0-31
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=cafenet-worker-%A-%a.log

# As many workers as the array has tasks. They may start before the search and end with it, and any of them may be
# preempted: others score what it had claimed.
set -euo pipefail
: "${OUTPUT:?the run directory}" "${STORAGE:?postgresql://USER@HOST/DB}"
srun cafenet worker "$STORAGE" --run "$OUTPUT" --study "${STUDY:-cafenet}" --wait "${WAIT_SECONDS:-86400}"
