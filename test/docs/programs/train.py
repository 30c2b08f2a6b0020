#!/bin/sh
# A training: it says which GPUs it sees, and computes for a moment. With --epochs it holds 6 GiB until it is stopped; with
# --batch it also asks for more than a small share has, computes on, and can be held back.
gpubench info | tr '{' '\n' | sed -nE 's/.*"name":"([^"]*)","total_bytes":([0-9]*).*/\1 \2/p' | while read -r line; do
	echo "training on ${line% *}, $((${line##* } >> 30)) GiB"
done
case $1 in
--epochs) sleep 600 | gpubench hold --bytes 6Gi >/dev/null ;;
--batch)
	gpubench alloc --bytes 3Gi --count 4 >/dev/null
	gpubench load --ns 2000000 --grid 108 --seconds 600 >/dev/null
	;;
*) gpubench spin --count 20 --ns 1000000 >/dev/null ;;
esac
