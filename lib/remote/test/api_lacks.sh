#!/bin/sh
# Prints what the client does not serve, for the API suite: the functions that the description refuses, the attributes of
# devices that are told otherwise, and, unless every call waits, the functions whose errors may come late.
# usage: api_lacks.sh cuda.yaml lacks.inc
set -eu
printf '%s\n' registered-address one-address
sed -n 's/^ *- {name: \([A-Za-z0-9_]*\),.* remote: refused .*/\1/p' "$1"
tr '\n' ' ' <"$2" | sed 's/REMOTE_LACKS(/\n/g' | sed -n 's/^\([A-Z0-9_]*\), \(-\{0,1\}[0-9]*\), always,.*/attribute \1 \2/p'
echo
test "${3-}" = strict || sed -n -e 's/^ *- {name: \([A-Za-z0-9_]*\),.* remote: posted.*/late \1/p' \
	-e 's/^ *- {name: \(cuLaunch[A-Za-z0-9_]*\),.* remote: hand kernel.*/late \1/p' "$1"
