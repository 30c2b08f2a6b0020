package main

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	rssGoal  = 60 // MiB
	idleGoal = 1  // percent of one processor
	mebibyte = 1 << 20
)

// idle looks at the agent while its shares do nothing: nobody starts, ends or launches. Its metrics are read as often as
// Prometheus would.
func (b *bench) idle(ctx context.Context) ([]measurement.Row, error) {
	var percent, resident []float64
	for i := range b.plan.windows {
		b.say("look at the idle agent, %d of %d", i+1, b.plan.windows)
		begin, err := b.agent.read(ctx)
		if err != nil {
			return nil, err
		}
		if held := begin.value("divvy_agent_prepared_claims"); held != float64(b.plan.shares) {
			return nil, fmt.Errorf("the agent has %v claims, not %d", held, b.plan.shares)
		}
		began := time.Now()
		end := begin
		for left := b.plan.window; left > 0; left = b.plan.window - time.Since(began) {
			select {
			case <-time.After(min(left, scrapeEvery)):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if end, err = b.agent.read(ctx); err != nil {
				return nil, err
			}
			resident = append(resident, end.value("process_resident_memory_bytes")/mebibyte)
		}
		used := end.value("process_cpu_seconds_total") - begin.value("process_cpu_seconds_total")
		percent = append(percent, 100*used/time.Since(began).Seconds())
	}
	about := fmt.Sprintf("%d shares on 8 GPUs, each with a process that holds memory", b.plan.shares)
	memory := measurement.Of("k8s.agent_rss_mib", "MiB", rssGoal, measurement.Lower, command, resident...)
	memory.Note = about
	time := measurement.Of("k8s.agent_idle_cpu_percent", "% of a core", idleGoal, measurement.Lower, command, percent...)
	time.Note = fmt.Sprintf("%s; windows of %s, metrics read every %s", about, b.plan.window, scrapeEvery)
	return []measurement.Row{memory, time}, nil
}
