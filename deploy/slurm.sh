#!/bin/bash
# A run as a Slurm job: load from a node beside the engine's, results on a shared file system, and a run that goes on after it
# was preempted or its time was over.
#
#   ENGINE_URL=http://node17:8000 RESULTS=/shared/me/run1 sbatch deploy/slurm.sh
#
# Preempted (PreemptMode=REQUEUE) it is queued again by Slurm; where its time was over, the same line again goes on with it.
# The job's exit code is pinchpoint's: 0 done and valid, 1 done with rungs that are not (or cut short), 2 could not run.
#SBATCH --job-name=pinchpoint
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=01:00:00
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
# Two minutes before the end: the first SIGTERM lets requests in flight end and closes the rung.

set -eu
: "${ENGINE_URL:?where the engine listens, as http://HOST:PORT; several with spaces between}"
: "${RESULTS:?a folder on a shared file system, the same in every try}"

# A folder with a plan is a run that began: go on with it.
if [ -e "$RESULTS/plan.json" ]; then
  exec srun --kill-on-bad-exit=0 pinchpoint run --resume "$RESULTS"
fi
# shellcheck disable=SC2086  # several addresses are several words
exec srun --kill-on-bad-exit=0 pinchpoint run --url $ENGINE_URL --profile mixed --concurrency 8,16,32 --max-duration 50m --output-dir "$RESULTS"
