package main

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/demo/screen"
)

const gib = 1 << 30

// watch is how long a person gets to look at each scene.
const watch = 1500 * time.Millisecond

// show is the demonstration.
type show struct {
	machine *machine
	screen  *screen.Screen
}

// look shows the table until the scene's time is over.
func (s *show) look(ctx context.Context) error {
	end := time.After(watch)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := s.machine.divvy(ctx, append([]string{"ls"}, s.machine.on()...)...)
		if err != nil {
			return err
		}
		s.screen.Table(text)
		select {
		case <-ticker.C:
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// play runs the scenes in turn; an error ends the show.
func (s *show) play(ctx context.Context) error {
	steady, victim, err := s.sharing(ctx)
	if err != nil {
		return err
	}
	if err := s.refusal(ctx); err != nil {
		return err
	}
	if err := s.death(ctx, victim); err != nil {
		return err
	}
	if err := s.reuse(ctx); err != nil {
		return err
	}
	return s.oracle(ctx, steady)
}

// sharing starts two tenants that stay within their shares, one after the other: lists have them in this order.
func (s *show) sharing(ctx context.Context) (steady, victim *tenant, err error) {
	s.screen.Say("Two tenants share the GPU: one may have 3Gi of it, one 6Gi.")
	steady, err = s.holding(ctx, "steady", 3, `"$G" hold --bytes 1Gi; "$G" copy --bytes 16Mi`)
	if err != nil {
		return nil, nil, err
	}
	victim, err = s.holding(ctx, "victim", 6, `exec "$G" hold --bytes 4Gi`)
	if err != nil {
		return nil, nil, err
	}
	return steady, victim, s.look(ctx)
}

// holding starts a tenant with a limit in GiB, and returns when it holds its memory.
func (s *show) holding(ctx context.Context, name string, limit uint64, command string) (*tenant, error) {
	t, err := s.machine.start(name, fmt.Sprintf("%dGi", limit), command)
	if err != nil {
		return nil, err
	}
	a, err := t.next(ctx)
	if err != nil {
		return nil, err
	}
	s.screen.Check(a.Result == "CUDA_SUCCESS" && a.Total == limit*gib, "%s holds its memory and sees a GPU of %d GiB", name, a.Total/gib)
	return t, nil
}

// refusal starts a tenant that wants more than its share, and then what fits.
func (s *show) refusal(ctx context.Context) error {
	s.screen.Say("A third tenant may have 2Gi, asks for 8Gi in pieces, and is refused at its limit.")
	greedy, err := s.machine.start("greedy", "2Gi", `"$G" alloc --bytes 64Mi --count 128; exec "$G" hold --bytes 512Mi`)
	if err != nil {
		return err
	}
	refused, err := greedy.next(ctx)
	if err != nil {
		return err
	}
	s.screen.Check(refused.Result == "CUDA_ERROR_OUT_OF_MEMORY" && refused.Allocated > 0 && refused.Allocated <= 2*gib,
		"greedy gets %d MiB of its 2048 and then %s", refused.Allocated>>20, refused.Result)
	held, err := greedy.next(ctx)
	if err != nil {
		return err
	}
	s.screen.Check(held.Result == "CUDA_SUCCESS", "greedy goes on within its share")
	list, err := s.machine.list(ctx)
	if err != nil {
		return err
	}
	s.screen.Check(active(list, "steady") && active(list, "victim") && active(list, "greedy"), "three tenants are on one GPU, the neighbours undisturbed")
	return s.look(ctx)
}

func active(list control.Listing, name string) bool {
	for _, t := range list.Tenants {
		if t.Name == name {
			return len(t.Shares) == 1 && t.Shares[0].Used > 0 && t.Shares[0].Used <= t.Shares[0].Limit
		}
	}
	return false
}

// death kills a tenant and waits for its memory.
func (s *show) death(ctx context.Context, victim *tenant) error {
	s.screen.Say("kill -9 victim: its 4Gi come back, and its share is free again.")
	before, err := s.machine.list(ctx)
	if err != nil {
		return err
	}
	if err := victim.kill(); err != nil {
		return err
	}
	start := time.Now()
	err = until(ctx, "the killed tenant's memory is back", func() (bool, error) {
		now, err := s.machine.list(ctx)
		return err == nil && len(now.Tenants) == 2 && used(now)+4*gib <= used(before), err
	})
	s.screen.Check(err == nil, "the killed tenant's memory and share are back after %d ms, `divvy ls` included", time.Since(start).Milliseconds())
	if err != nil {
		return err
	}
	return s.look(ctx)
}

// used is what the driver says is in use on all GPUs.
func used(list control.Listing) uint64 {
	var sum uint64
	for _, g := range list.GPUs {
		if g.Used != nil {
			sum += *g.Used
		}
	}
	return sum
}

// reuse gives the room to another tenant.
func (s *show) reuse(ctx context.Context) error {
	s.screen.Say("Another tenant takes the room that has become free.")
	next, err := s.machine.start("next", "6Gi", `exec "$G" hold --bytes 5Gi`)
	if err != nil {
		return err
	}
	a, err := next.next(ctx)
	if err != nil {
		return err
	}
	s.screen.Check(a.Result == "CUDA_SUCCESS", "another tenant takes the room")
	return s.look(ctx)
}

// oracle lets the first tenant compute, ends it, and asks the simulated driver
// whether anybody ever held more than the share allowed.
func (s *show) oracle(ctx context.Context, steady *tenant) error {
	limits := map[string]uint64{}
	list, err := s.machine.list(ctx)
	if err != nil {
		return err
	}
	for _, t := range list.Tenants {
		limits[t.ID] = t.Shares[0].Limit
	}
	steady.end()
	a, err := steady.next(ctx)
	if err != nil {
		return err
	}
	s.screen.Check(a.Equal, "steady's data went to the GPU and back unharmed")
	if s.machine.rundir == "" {
		return nil
	}
	report, err := s.machine.report(ctx)
	if err != nil {
		return err
	}
	within := 0
	for _, t := range report.Tenants {
		if limit, ok := limits[t.Tenant]; ok && len(t.GPUs) == 1 && t.GPUs[0].Peak <= limit {
			within++
		}
	}
	s.screen.Check(within == len(limits), "the simulated driver's own record: %d of %d tenants never passed their limit", within, len(limits))
	return nil
}
