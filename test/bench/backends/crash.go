package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	// crashCount is how often an agent is killed on the way from one form to another, each time a bit later.
	crashCount = 60
	// crashStep is by how much later: together they are longer than any switch takes on a simulated machine.
	crashStep = 4 * time.Millisecond
)

// crashes counts GPUs that are not whole after an agent was killed by SIGKILL while it changed their form and the next
// one has started: whole is a GPU that has the modes of the form that it is given, and those of before when it is given none.
func (b bench) crashes() (rows []measurement.Row, err error) {
	if os.Getuid() != 0 {
		return nil, errors.New("change modes of GPUs: run it as root")
	}
	m, err := simulated.Open(b.ctx, b.build, "a100-80g")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	count, broken := crashCount, 0
	if b.runs == 1 {
		count = len(every)
	}
	for i := range count {
		from, to := every[i%len(every)], every[(i+1+i/len(every)%(len(every)-1))%len(every)]
		whole, err := b.crash(m, from, to, time.Duration(i)*crashStep)
		if err != nil {
			return nil, err
		}
		if whole != nil {
			broken++
			fmt.Fprintf(os.Stderr, "killed after %s: %v\n", time.Duration(i)*crashStep, whole)
		}
	}
	row := measurement.Of("form.crash", "GPUs not whole", 0, measurement.Lower, command("form.crash"), float64(broken))
	row.Case = fmt.Sprintf("agent killed during a switch, %d times", count)
	return []measurement.Row{row}, nil
}

// crash kills an agent some time after it was asked for another form. Broken says what is not whole then.
func (b bench) crash(m *simulated.Machine, from, to form, after time.Duration) (broken, err error) {
	first, client, err := serve(b.ctx, m)
	if err != nil {
		return nil, err
	}
	if _, err := client.GiveForm(b.ctx, control.FormParams{GPU: "0", Form: from.given}, nil); err != nil {
		return nil, errors.Join(err, client.Close(), first.end())
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = client.GiveForm(b.ctx, control.FormParams{GPU: "0", Form: to.given}, nil) // whose answer may never come
	}()
	select {
	case <-time.After(after):
	case <-b.ctx.Done():
	}
	if err := first.command.Process.Kill(); err != nil {
		return nil, fmt.Errorf("kill the agent: %w", err)
	}
	_ = first.command.Wait() // it was killed
	<-asked
	_ = client.Close() // nobody is there
	next, client, err := serve(b.ctx, m)
	if err != nil {
		return nil, err
	}
	broken = b.whole(client, m, from, to)
	return broken, errors.Join(client.Close(), next.end())
}

// whole returns what is not whole about a GPU that changed from one form to another.
func (b bench) whole(client *control.Client, m *simulated.Machine, from, to form) error {
	store := simgpu.NewStore(os.Getenv("DIVVY_RUNDIR"), install.Tree(b.build))
	forms, err := client.Forms(b.ctx)
	if err != nil {
		return err
	}
	has := from
	if g := forms.GPUs[0]; g.Form == to.given.Backend && g.Slice == to.given.Slice {
		has = to
	} else if g.Form != from.given.Backend || g.Slice != from.given.Slice || g.Fault != "" {
		return fmt.Errorf("it has form %s, slice %q: %s", g.Form, g.Slice, g.Fault)
	}
	if err := isMade(b.ctx, store, m.Instance, has); err != nil {
		return err
	}
	if _, err := client.GiveForm(b.ctx, control.FormParams{GPU: "0"}, nil); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("DIVVY_RUNDIR"), "mps", "*"))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("daemons are left: %v, %w", left, err)
	}
	return isMade(b.ctx, store, m.Instance, every[0])
}
