package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	residentID, residentGoal = "ops.agent_rss_mib", 80
	addedID, addedGoal       = "ops.agent_added_cpu_percent", 1
	// settled is left out after the agent's start.
	settled = 5 * time.Second
	// scraped is how far apart scrapes are, which is usual.
	scraped = 15 * time.Second
)

// bare is a configuration without history and web page.
const bare = `apiVersion: divvy.dev/v1alpha1
kind: AgentConfig
history: {record: false}
web: {enabled: false}
`

// measureCost takes what an agent has in memory and what it takes of a core while all shares launch kernels, once with
// metrics scraped, root's web page open and history kept, and once without all three. The agent is started anew for each,
// in turn, under the same shares.
func measureCost(ctx context.Context, o options) ([]measurement.Row, error) {
	shares, watched, runs := 200, 30*time.Second, 3
	if o.quick {
		shares, watched, runs = 16, 5*time.Second, 1
	}
	s, err := openWith(ctx, o.build, shares, launching)
	if err != nil {
		return nil, err
	}
	var added, resident []float64
	var with, without, whole float64
	for range runs {
		var memory simulated.Memory
		if with, memory, err = s.whole(ctx, watched); err == nil {
			without, err = s.bare(ctx, watched)
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		whole = max(whole, float64(memory.Resident)/(1<<20))
		added, resident = append(added, with-without), append(resident, float64(memory.Proportional)/(1<<20))
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d shares launching on %d GPUs", shares, gpus)
	row := measurement.Of(residentID, "MiB", residentGoal, measurement.Lower, "make bench-ops ONLY="+residentID, resident...)
	row.Case = name
	row.Note = fmt.Sprintf("agent and helper, the most of readings a second apart; what processes have in common counts once among them (Pss), "+
		"with the program's file and the pages of shares counted for each it was at most %.1f MiB (Rss); history, metrics scraped every 15 s, "+
		"root's web page open", whole)
	more := measurement.Of(addedID, "%", addedGoal, measurement.Lower, "make bench-ops ONLY="+addedID, added...)
	more.Case = name
	more.Note = fmt.Sprintf("of a core, by history, scrapes every 15 s and root's web page open, each run %s with and %s without; last run %.1f %% and %.1f %%",
		watched, watched, with, without)
	return []measurement.Row{row, more}, nil
}

// whole is what an agent takes with everything on.
func (s *served) whole(ctx context.Context, watched time.Duration) (percent float64, memory simulated.Memory, err error) {
	if err := s.again(ctx, "--metrics-address", s.address); err != nil {
		return 0, simulated.Memory{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- s.look(ctx) }()
	go func() { ended <- s.scrapeOn(ctx) }()
	percent, memory, err = s.watch(watched)
	cancel()
	for range cap(ended) {
		if one := <-ended; one != nil && !errors.Is(one, context.Canceled) {
			err = errors.Join(err, one)
		}
	}
	return percent, memory, err
}

// bare is what an agent takes without metrics, web page and history.
func (s *served) bare(ctx context.Context, watched time.Duration) (percent float64, err error) {
	config := filepath.Join(filepath.Dir(filepath.Dir(s.machine.Instance)), "bare.yaml")
	if err := os.WriteFile(config, []byte(bare), 0o600); err != nil {
		return 0, err
	}
	if err := s.again(ctx, "--metrics-address", "none", "--config", config); err != nil {
		return 0, err
	}
	percent, _, err = s.watch(watched)
	return percent, err
}

// again replaces the agent by one with other flags, and waits until it tells of all shares.
func (s *served) again(ctx context.Context, flags ...string) error {
	if err := errors.Join(s.stopAgent(), s.startAgent(flags...)); err != nil {
		return err
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := s.list(ctx)
		if err == nil {
			return s.machine.Pause(settled)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("an agent that was started again does not tell of all shares: %w: %s", err, s.said.String())
		}
		if err := s.machine.Pause(100 * time.Millisecond); err != nil {
			return err
		}
	}
}

// watch looks at the agent each second for a while. It returns the part of a core that it took, and the most that it had in
// memory.
func (s *served) watch(watched time.Duration) (percent float64, memory simulated.Memory, err error) {
	begin := time.Now()
	spent, err := simulated.SpentByAgent(s.agent.Process.Pid)
	if err != nil {
		return 0, simulated.Memory{}, err
	}
	for time.Since(begin) < watched {
		resident, err := simulated.MemoryOfAgent(s.agent.Process.Pid)
		if err == nil {
			err = s.machine.Pause(time.Second)
		}
		if err != nil {
			return 0, simulated.Memory{}, err
		}
		memory.Resident, memory.Proportional = max(memory.Resident, resident.Resident), max(memory.Proportional, resident.Proportional)
	}
	now, err := simulated.SpentByAgent(s.agent.Process.Pid)
	return 100 * (now - spent).Seconds() / time.Since(begin).Seconds(), memory, err
}

// scrapeOn reads metrics as Prometheus does, until it is told to end.
func (s *served) scrapeOn(ctx context.Context) error {
	for {
		if _, _, err := s.scrape(ctx); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		select {
		case <-time.After(scraped):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look has root's web page open as a browser does: it asks for the page again when it is told of a change.
func (s *served) look(ctx context.Context) error {
	link, err := exec.CommandContext(ctx, s.machine.Divvy, "web", "--simgpu", filepath.Base(s.machine.Instance)).Output()
	if err != nil {
		return fmt.Errorf("ask for the web page: %w", err)
	}
	first, err := get(ctx, strings.TrimSpace(string(link)))
	if err != nil {
		return err
	}
	address := first.Request.URL.String()
	if err := read(first); err != nil {
		return err
	}
	told, err := get(ctx, address+"?events")
	if err != nil {
		return err
	}
	defer func() { _ = told.Body.Close() }()
	events := bufio.NewScanner(told.Body)
	for events.Scan() {
		if !strings.HasPrefix(events.Text(), "data: ") {
			continue
		}
		page, err := get(ctx, address)
		if err == nil {
			err = read(page)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), events.Err())
}

func get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("open the web page: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("open the web page: %s", answer.Status), answer.Body.Close())
	}
	return answer, nil
}

func read(answer *http.Response) error {
	_, err := io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}
