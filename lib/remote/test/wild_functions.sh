#!/bin/sh
# Prints each function of the driver that is served, and the types of its parameters, for a test that gives them anything.
# usage: wild_functions.sh cuda.yaml
set -eu
# Left out are those that would wait for what never comes, and those that take functions of the program, or a float.
sed -n '/^functions:/,$p' "$1" |
	sed -n -e 's/^ *- {name: \([A-Za-z0-9_]*\),.* remote: [^r].* takes: \[\(.*\)\]}.*/\1|\2/p' \
		-e 's/^ *- {name: \([A-Za-z0-9_]*_pt[ds][sz]\),.* takes: \[\(.*\)\]}.*/\1|\2/p' |
	sed -e 's/ \* [a-z][^,]*/ */g' -e 's/ ends//g' -e 's/, /,/g' |
	grep -v -e '^cuStreamWaitValue' -e '^cuStreamBatchMemOp' -e 'CUhostFn' -e 'Callback' -e 'B2DSize' -e '[|,]float\(,\|$\)' -e '^cuInit|'
