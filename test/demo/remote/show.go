package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/demo/screen"
)

const gib = 1 << 30

// show is the demonstration.
type show struct {
	hosts  *hosts
	screen *screen.Screen
}

// answer is what gpubench prints.
type answer struct {
	Result    string `json:"result"`
	Allocated uint64 `json:"allocated_bytes"`
	Total     uint64 `json:"total_bytes"`
}

// play runs the scenes in turn; an error ends the show.
func (s *show) play(ctx context.Context) error {
	for _, scene := range []func(context.Context) error{s.admit, s.refusal, s.lists, s.death, s.oracle} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// admit lets the client in, and shows that it has no driver.
func (s *show) admit(ctx context.Context) error {
	h := s.hosts
	s.screen.Say("gpuhost has a GPU. It lets laptop in, which may have 4Gi of it, and serves.")
	served, bundle := filepath.Join(h.serverDir(), "serve"), filepath.Join(h.clientDir(), "bundles", "gpuhost.pem")
	if _, err := h.output(h.onServer(ctx, h.divvy(), "serve", "init", "--dir", served, "gpuhost", address)); err != nil {
		return err
	}
	said, err := h.output(h.onServer(ctx, h.divvy(), "serve", "admit", "laptop", "--dir", served, "--user", "root", "--memory", "4Gi", "--out", bundle))
	if err != nil {
		return err
	}
	s.screen.Table("gpuhost$ divvy serve init; divvy serve admit laptop --memory 4Gi; divvy serve\n" + strings.ReplaceAll(said, bundle, "gpuhost.pem"))
	if err := h.serve(ctx); err != nil {
		return err
	}
	s.screen.Say("laptop has neither a driver nor the simulated one.")
	alone := h.onClient(ctx, h.gpubench(), "alloc", "--bytes", "64Mi")
	err = alone.Run()
	s.screen.Check(err != nil && alone.ProcessState.ExitCode() == 3, "on laptop a program finds no driver")
	return nil
}

// run is `divvy run --remote` of gpubench on the client.
func (s *show) run(ctx context.Context, memory string, args ...string) *exec.Cmd {
	argv := []string{s.hosts.divvy(), "run", "--remote", address, "--memory", memory, "--", s.hosts.gpubench()}
	return s.hosts.onClient(ctx, append(argv, args...)...)
}

// refusal has a program ask for more than its share, and the client for more than it may have.
func (s *show) refusal(ctx context.Context) error {
	s.screen.Say("A program on laptop may have 2Gi of that GPU, asks for 4Gi in pieces, and is refused at its limit.")
	var said bytes.Buffer
	asks := s.run(ctx, "2Gi", "alloc", "--bytes", "64Mi", "--count", "64")
	asks.Stderr = &said
	text, _ := asks.Output() // it fails, and says how
	s.screen.Table(fmt.Sprintf("laptop$ divvy run --remote %s --memory 2Gi -- gpubench alloc --bytes 64Mi --count 64\n%s", address, text))
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("read what gpubench said: %w: %q %s", err, text, said.String())
	}
	s.screen.Check(a.Result == "CUDA_ERROR_OUT_OF_MEMORY" && a.Allocated > 0 && a.Allocated <= 2*gib && a.Total == 2*gib,
		"it sees a GPU of %d GiB, gets %d MiB and then %s", a.Total/gib, a.Allocated>>20, a.Result)
	_, err := s.hosts.output(s.run(ctx, "8Gi", "alloc", "--bytes", "64Mi"))
	s.screen.Check(err != nil && strings.Contains(err.Error(), "4Gi"), "8Gi are more than laptop may have, and refused")
	return nil
}

// lists shows a share on both hosts.
func (s *show) lists(ctx context.Context) error {
	s.screen.Say("A share is seen on both hosts.")
	held := s.run(context.WithoutCancel(ctx), "2Gi", "hold", "--bytes", "1Gi")
	input, err := held.StdinPipe()
	if err != nil {
		return err
	}
	out, err := held.StdoutPipe()
	if err != nil {
		return err
	}
	if err := held.Start(); err != nil {
		return err
	}
	defer func() { _ = errors.Join(input.Close(), held.Wait()) }()
	if _, err := io.ReadAtLeast(out, make([]byte, 4096), 1); err != nil {
		return fmt.Errorf("wait for the program that holds memory: %w", err)
	}
	there, err := s.hosts.output(s.hosts.onServer(ctx, s.hosts.divvy(), "ls"))
	if err != nil {
		return err
	}
	here, err := s.hosts.output(s.hosts.onClient(ctx, s.hosts.divvy(), "ls"))
	if err != nil {
		return err
	}
	s.screen.Table("gpuhost$ divvy ls\n" + there + "\nlaptop$ divvy ls\n" + here)
	s.screen.Check(strings.Contains(there, "laptop") && strings.Contains(there, "2Gi"), "gpuhost lists the share with its client")
	s.screen.Check(strings.Contains(here, address) && strings.Contains(here, "2Gi"), "laptop lists the share with its host")
	return nil
}

// death kills the server of a program that waits for the GPU.
func (s *show) death(ctx context.Context) error {
	s.screen.Say("kill -9 of the server, while a program on laptop waits for the GPU: it hears of that.")
	waits := s.run(context.WithoutCancel(ctx), "2Gi", "spin", "--ns", "60000000000")
	var out, said bytes.Buffer
	waits.Stdout, waits.Stderr = &out, &said
	if err := waits.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = waits.Wait() // what it printed says how it ended
		close(ended)
	}()
	before, err := s.hosts.report(ctx)
	if err == nil {
		err = s.until(ctx, "the GPU works", func(r *simgpu.Report) bool { return r.GPUs[0].BusyNs > before.GPUs[0].BusyNs+50_000_000 })
	}
	if err != nil {
		err = errors.Join(err, waits.Process.Kill())
		<-ended
		return err
	}
	start := time.Now()
	s.hosts.stop(syscall.SIGKILL)
	select {
	case <-ended: // with an error: its GPU has gone
	case <-time.After(longest):
		err = errors.Join(errors.New("the program is not answered"), waits.Process.Kill())
		<-ended
		return err
	}
	s.screen.Table("laptop: " + out.String() + "laptop: " + said.String())
	s.screen.Check(strings.Contains(out.String(), "CUDA_ERROR_DEVICE_UNAVAILABLE"), "the program was answered within %d ms", time.Since(start).Milliseconds())
	s.screen.Check(strings.Count(strings.TrimSpace(said.String()), "\n") == 0 && said.Len() > 0, "one line on its standard error says why")
	err = s.until(ctx, "its memory is free", func(r *simgpu.Report) bool { return r.GPUs[0].Used == 0 })
	s.screen.Check(err == nil, "its memory on gpuhost is free")
	return nil
}

// until asks the driver's record until it is as it should be.
func (s *show) until(ctx context.Context, what string, is func(*simgpu.Report) bool) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for ctx.Err() == nil {
		r, err := s.hosts.report(ctx)
		if err != nil {
			return err
		}
		if is(r) {
			return nil
		}
	}
	return fmt.Errorf("wait until %s: %w", what, ctx.Err())
}

// oracle asks the simulated driver whether anybody ever held more than the share allowed.
func (s *show) oracle(ctx context.Context) error {
	r, err := s.hosts.report(ctx)
	if err != nil {
		return err
	}
	within := 0
	for _, t := range r.Tenants {
		if len(t.GPUs) == 1 && t.GPUs[0].Peak <= 2*gib {
			within++
		}
	}
	s.screen.Check(within == len(r.Tenants) && within >= 3, "the simulated driver's own record: %d of %d tenants never passed their limit", within, len(r.Tenants))
	return nil
}
