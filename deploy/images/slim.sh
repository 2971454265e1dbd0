#!/bin/sh
# Takes out of an environment what no service uses: tests, headers, examples, Arrow's part for another protocol, symbols
# for debuggers. Used while an image is built.
set -eu
packages=$(echo "$1"/lib/python3.*/site-packages)
find "$packages" -depth -type d \( -name tests -o -name test -o -name include \) -exec rm -rf {} +
rm -rf "$packages/matplotlib/mpl-data/sample_data"
find "$packages/pyarrow" -maxdepth 1 -name '*flight*' -delete
find "$packages" -name '*.so*' -type f -size +1M -exec strip --strip-unneeded {} +
