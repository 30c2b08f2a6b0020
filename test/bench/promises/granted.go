package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

const (
	grantedID = "promise.double_granted_bytes"
	// restarts is how often the system agent is killed and started in one run.
	restarts = 200
)

// granted kills and restarts the system agent while six users start, wait, set, stop and
// try own agents. Three of them had own agents before, which the system agent took over.
func granted(ctx context.Context, o options) ([]measurement.Row, error) {
	var twice, lost []float64
	for range o.runs() {
		j, err := judgeRestarts(ctx, o)
		if err != nil {
			return nil, err
		}
		twice, lost = append(twice, float64(j.twice)), append(lost, float64(len(j.lost)))
	}
	return []measurement.Row{
		row(grantedID, "granted twice", "bytes", 0, twice), row(grantedID, "shares lost", "count", 0, lost),
	}, nil
}

// judge compares what pages grant with what the GPUs have, and what the simulated driver
// sees with what the agent lists.
type judge struct {
	server *server
	// capacity is what each GPU has for tenants, by the digits of its UUID.
	capacity map[string]uint64
	samples  int
	twice    uint64
	// lost are tenants that live and that a new agent did not list.
	lost map[string]bool
}

func judgeRestarts(ctx context.Context, o options) (*judge, error) {
	s, err := openServer(ctx, o.build)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var crowd sync.WaitGroup
	defer func() {
		cancel()
		crowd.Wait()
		s.Close()
	}()
	var all []*customer
	for n := range multiuser.Users {
		c := newCustomer(s, n+1)
		all = append(all, c)
		if n < multiuser.Users/2 {
			c.start(ctx, false) // with an agent of their own
		}
	}
	agent, err := s.startAgent(ctx)
	if err != nil {
		return nil, err
	}
	j, err := newJudge(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		crowd.Go(func() { c.live(ctx) })
	}
	crowd.Go(func() { j.watch(ctx) })
	times := restarts
	if o.quick {
		times = restarts / 10
	}
	for n := range times {
		busy(ctx, all, int64(n+1)*perRestart)
		if err := multiuser.Signal(agent, syscall.SIGKILL); err != nil {
			return nil, err
		}
		_ = agent.Wait() // how it ended is known
		if agent, err = s.startAgent(ctx); err != nil {
			return nil, err
		}
		if err := j.compare(ctx); err != nil {
			return nil, err
		}
	}
	cancel()
	crowd.Wait()
	done := int64(0)
	for _, c := range all {
		done += c.done.Load()
	}
	fmt.Printf("%d restarts, %d commands of users that succeeded, %d looks at the pages\n", times, done, j.samples)
	return j, nil
}

// perRestart is how many commands of users end between two restarts.
const perRestart = 10

// busy waits until the users have ended so many commands.
func busy(ctx context.Context, all []*customer, commands int64) {
	for ctx.Err() == nil {
		tried := int64(0)
		for _, c := range all {
			tried += c.tried.Load()
		}
		if tried >= commands {
			return
		}
		pause(ctx, time.Millisecond)
	}
}

// startAgent starts the system agent and returns when it serves.
func (s *server) startAgent(ctx context.Context) (*exec.Cmd, error) {
	cmd := s.Command(context.WithoutCancel(ctx), "root", "divvy", "agent")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	for {
		client, err := control.Dial(ctx, s.Socket())
		if err == nil {
			return cmd, client.Close()
		}
		if _, childErr := multiuser.Child(cmd); childErr != nil && said.Len() > 0 || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("start the agent: %w: %s", err, said.String()), ctx.Err())
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// compare looks for tenants whose processes the simulated driver sees before and after
// the agent lists its tenants, and which are not in that list.
func (j *judge) compare(ctx context.Context) error {
	before, err := j.server.Report(ctx)
	if err != nil {
		return err
	}
	list, err := j.server.List(ctx)
	if err != nil {
		return err
	}
	after, err := j.server.Report(ctx)
	if err != nil {
		return err
	}
	listed := map[string]bool{"": true}
	for _, t := range list.Tenants {
		listed[t.ID] = true
	}
	for tenant := range alive(before) {
		if alive(after)[tenant] && !listed[filepath.Base(tenant)] {
			j.lost[tenant] = true
			fmt.Println("lost:", tenant)
		}
	}
	return nil
}

// alive are the tenants of which a process holds memory.
func alive(r *simgpu.Report) map[string]bool {
	tenants := map[string]bool{}
	for _, p := range r.Processes {
		for _, g := range p.GPUs {
			if g.Used > 0 && p.Tenant != "" {
				tenants[p.Tenant] = true
			}
		}
	}
	return tenants
}

func newJudge(ctx context.Context, s *server) (*judge, error) {
	j := &judge{server: s, capacity: map[string]uint64{}, lost: map[string]bool{}}
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	report, err := s.Report(ctx)
	if err != nil {
		return nil, err
	}
	if taken := len(list.Tenants); taken != multiuser.Users/2 {
		return nil, fmt.Errorf("the system agent took %d of %d shares over", taken, multiuser.Users/2)
	}
	for _, g := range report.GPUs {
		j.capacity[strings.ReplaceAll(strings.TrimPrefix(g.UUID, "GPU-"), "-", "")] = g.Total - g.Reserved
	}
	return j, nil
}

// watch sums what living tenants are granted, again and again.
func (j *judge) watch(ctx context.Context) {
	for ctx.Err() == nil {
		j.look()
		pause(ctx, 2*time.Millisecond)
	}
}

// look counts the tenants that live before and after all pages were read: these live at
// one moment. Of a limit that changed meanwhile the smaller counts. Directories that a
// system agent made for tenants of own agents have the same state page, and count once.
func (j *judge) look() {
	j.samples++
	first := j.grants()
	second := j.grants()
	sums := map[string]uint64{}
	for state, was := range first {
		for uuid, limit := range second[state] {
			sums[uuid] += min(limit, was[uuid])
		}
	}
	for uuid, sum := range sums {
		if over := sum - min(sum, j.capacity[uuid]); over > j.twice {
			j.twice = over
			fmt.Printf("granted twice: %d bytes of GPU %s\n", over, uuid)
		}
	}
}

// grants are the limits of tenants that live, by the inode of the state page.
func (j *judge) grants() map[uint64]map[string]uint64 {
	found := map[uint64]map[string]uint64{}
	places, _ := filepath.Glob(j.server.Root + "/dev/shm/divvy-*/tenants/*") // the pattern is sound
	for _, place := range places {
		d := tenantdir.Dir(place)
		c, err := page.ReadConfig(d.Config())
		live, liveErr := page.AnyLive(d.State())
		state, stateErr := inode(d.State())
		if err != nil || liveErr != nil || stateErr != nil || !live {
			continue
		}
		limits := map[string]uint64{}
		for _, device := range c.Device[:c.DeviceCount] {
			uuid := hex.EncodeToString(device.UUID[:])
			limits[uuid] = max(device.Limit, found[state][uuid])
		}
		found[state] = limits
	}
	return found
}
