package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// The two kinds of share that are compared.
var (
	local  = []string{"--backend", "slice"}
	remote = []string{"--backend", "remote"}
)

// longest bounds each wait for something that takes milliseconds.
const longest = 20 * time.Second

// begin starts a program in a share, which may be on the other host.
func (b *bench) begin(share []string, program ...string) (*simulated.Tenant, error) {
	if share[0] == "--remote" {
		return simulated.StartBare(slices.Concat([]string{b.Divvy, "run", "--memory", "2Gi"}, share, []string{"--"}, program)...)
	}
	return b.Start(share, program...)
}

// gpubench runs it in a share to its end, and returns what it said.
func (b *bench) gpubench(share []string, args ...string) ([]simulated.Line, error) {
	t, err := b.begin(share, append([]string{b.Gpubench}, args...)...)
	if err != nil {
		return nil, err
	}
	defer t.End()
	return t.Wait(b.Context())
}

// pair is one number of a local share and one of a remote one, taken one after the other.
type pair struct{ local, remote float64 }

// pairs takes pairs of what gpubench says in some numbers, of a local share and one away; each pair begins with the other one. The
// first index is that of the number.
func (b *bench) pairs(away []string, count int, of func([]simulated.Line) []float64, args ...string) ([][]pair, error) {
	var all [][]pair
	for i := range b.times(count) {
		var said [2][]float64
		for turn := range 2 {
			which := (i + turn) % 2
			lines, err := b.gpubench([][]string{local, away}[which], args...)
			if err != nil {
				return nil, err
			}
			said[which] = of(lines)
		}
		if all == nil {
			all = make([][]pair, len(said[0]))
		}
		for n := range all {
			all[n] = append(all[n], pair{said[0][n], said[1][n]})
		}
	}
	return all, nil
}

// each is a number of each pair.
func each(pairs []pair, of func(pair) float64) (list []float64) {
	for _, p := range pairs {
		list = append(list, of(p))
	}
	return list
}

// medians are those of each side, for people.
func medians(pairs []pair) (local, remote float64) {
	return middle(each(pairs, func(p pair) float64 { return p.local })), middle(each(pairs, func(p pair) float64 { return p.remote }))
}

// record is the simulated driver's own.
func (b *bench) record() (*simgpu.Report, error) {
	text, err := exec.Command(b.Simgpuctl, "report", b.Instance).Output()
	if err != nil {
		return nil, fmt.Errorf("read the simulated driver's record: %w", err)
	}
	return simgpu.ParseReport(text)
}

// until asks for the record until it is as it should be.
func (b *bench) until(what string, is func(*simgpu.Report) bool) error {
	deadline := time.Now().Add(longest)
	for time.Now().Before(deadline) && b.Context().Err() == nil {
		r, err := b.record()
		if err != nil {
			return err
		}
		if is(r) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("wait until %s: it does not come", what), b.Context().Err())
}

// workers are the processes that use the GPU for programs of remote shares.
func workers(r *simgpu.Report) (pids []int) {
	for _, p := range r.Processes {
		if p.Command == "divvy-worker" {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// worker waits for the one worker that there is.
func (b *bench) worker() (pid int, err error) {
	err = b.until("there is one worker", func(r *simgpu.Report) bool {
		all := workers(r)
		if len(all) == 1 {
			pid = all[0]
		}
		return len(all) == 1
	})
	return pid, err
}

// socket is where the only remote share's worker listens, as its program sees it too.
func (b *bench) socket() (string, error) {
	found, err := filepath.Glob(filepath.Join(os.Getenv("DIVVY_RUNDIR"), "tenants", "*", "client", "worker.sock"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find the worker's socket: %d there, %w", len(found), err)
	}
	return found[0], nil
}

// middle is the median of numbers in no order.
func middle(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
