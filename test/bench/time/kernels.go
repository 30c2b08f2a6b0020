package main

import (
	"strings"
	"time"
)

// kernels is a way to keep the GPU busy.
type kernels struct {
	name   string
	args   string // of gpubench load
	window time.Duration
}

// Kernels of 50 ms cannot be cut, so that a second says little about them.
var cases = []kernels{
	{"20 us", "--ns 20000", time.Second},
	{"20 us, synchronised", "--ns 20000 --sync 1", time.Second},
	{"1 ms", "--ns 1000000", time.Second},
	{"1 ms, synchronised", "--ns 1000000 --sync 1", time.Second},
	{"1 ms, a million blocks", "--ns 1000000 --grid 1000000", time.Second},
	{"graph of 1 ms", "--ns 50000 --graph 20", time.Second},
	{"50 ms", "--ns 50000000", 10 * time.Second},
	{"50 ms, synchronised", "--ns 50000000 --sync 1", 10 * time.Second},
}

// cases are those that were asked for; the quick mode leaves out what takes long, unless named.
func (b *bench) cases() []kernels {
	var chosen []kernels
	for _, k := range cases {
		if !strings.HasPrefix(k.name, b.kernels) || (b.quick && b.kernels == "" && k.window > time.Second) {
			continue
		}
		chosen = append(chosen, k)
	}
	return chosen
}

// load is gpubench's command line for these kernels.
func (k kernels) load() []string {
	return append([]string{"load"}, strings.Fields(k.args)...)
}
