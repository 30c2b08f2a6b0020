package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	limitID = "remote.limit_over_bytes"
	limit   = 2 << 30 // of every share here
	drawn   = 10_000  // records of one run

	// A worker that does not come back from a record is a failure too.
	garbageTime = 2 * time.Minute
)

// limits has a client send drawn records of its own making to the worker of a share, of whose memory another program has all but
// what the client's context takes and a little, or hardly anything. What counts is the most that the driver's record ever saw
// of the share.
func (b *bench) limits() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		name, holds string
		least       uint64
	}{
		{"local, beside a program that has nearly all", "1200Mi", limit * 9 / 10},
		{"local, nearly alone", "1Mi", limit / 4},
	} {
		var over []float64
		var peak uint64
		for seed := range b.times(5) {
			most, err := b.garbage(c.holds, seed+1)
			if err != nil {
				return nil, err
			}
			if most < c.least {
				return nil, fmt.Errorf("beside %s, %d bytes of the share were held at most: that tries no limit", c.holds, most)
			}
			peak = max(peak, most)
			over = append(over, float64(max(most, limit)-limit))
		}
		r := row(limitID, c.name, "bytes", 0, measurement.Lower, over)
		r.Value = r.Worst // one run that passes the limit is enough
		r.Note = fmt.Sprintf("%d records a run, drawn with another seed in each. The most that was ever held is %.1f %% of the limit.", drawn, 100*float64(peak)/limit)
		rows = append(rows, r)
	}
	return rows, nil
}

// garbage is the most that a share ever had beside drawn records.
func (b *bench) garbage(holds string, seed int) (uint64, error) {
	t, err := b.Start(remote, b.Gpubench, "hold", "--bytes", holds)
	if err != nil {
		return 0, err
	}
	defer t.End()
	if _, _, err := t.Working(1); err != nil {
		return 0, err
	}
	socket, err := b.socket()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(b.Context(), garbageTime)
	defer cancel()
	client := exec.CommandContext(ctx, filepath.Join(b.build, "test", "remote", "worker_garbage"))
	client.WaitDelay = time.Second
	client.Env = append(os.Environ(), "SOCKET="+socket, fmt.Sprintf("SEED=%d", seed), fmt.Sprintf("FRAMES=%d", drawn))
	if text, err := client.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("send drawn records: %w: %s", err, strings.TrimSpace(string(text)))
	}
	r, err := b.record()
	if err != nil {
		return 0, err
	}
	most := held(r, filepath.Base(filepath.Dir(filepath.Dir(socket))))
	t.End()
	return most, b.Alone()
}

// held is the most that a share ever had.
func held(r *simgpu.Report, share string) (most uint64) {
	for _, t := range r.Tenants {
		if t.Tenant == share {
			for _, g := range t.GPUs {
				most = max(most, g.Peak)
			}
		}
	}
	return most
}
