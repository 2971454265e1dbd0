#!/bin/sh
# Every version and its hashes, for each thing that is installed; `make lock` runs it, and with UPGRADE=1 takes newer ones.
# The labels party has no trainer, the features party draws no noise: what only the other one uses is left out, with all
# that it needs itself.
set -eu
cd "$(dirname "$0")/../.."
locked() {
  file=$1; shift
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header ${UPGRADE:+--upgrade} --output-file "deploy/locks/$file.txt" "$@"
}
locked dev pyproject.toml --extra dev
# `make test` has no other versions than `make check`, and both parties run what was tested
tested="--constraint deploy/locks/dev.txt"
locked test pyproject.toml --extra test $tested
locked labels-party pyproject.toml --extra labels --extra postgres --extra stores $tested
locked features-party pyproject.toml --extra features --extra postgres --extra stores --extra onnx $tested
sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml | locked build -
