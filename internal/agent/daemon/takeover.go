package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

const (
	// askTime bounds how long a user's own agent may take to hand over.
	askTime = 5 * time.Second
	// goneTime bounds how long it may take to end after that.
	goneTime = 5 * time.Second
)

// holdGPUs makes a system agent the holder of all GPUs, and returns what users' own
// agents leave to it. An own agent holds none yet: it does with its first share there.
//
// An own agent that does not answer, or keeps its GPU, keeps nobody away: its pages and
// the processes that live by them are counted all the same, and it grants nothing more
// once it sees the mark.
func (s *service) holdGPUs(ctx context.Context, uuids []string) ([]agent.Heritage, error) {
	s.locks.Kind = gpulock.Real
	if s.options.Endpoint.Simgpu != "" {
		s.locks.Kind = gpulock.Simulated
	}
	s.locks.Serve = s.serveLock(context.WithoutCancel(ctx))
	s.closers = append(s.closers, func() error { s.locks.Close(); return nil })
	if !s.options.shared() {
		return nil, nil
	}
	all, err := s.reclaim(ctx, uuids)
	if err != nil {
		return nil, err
	}
	if s.options.Endpoint.Simgpu == "" {
		for uid := range rundir.Others() {
			for _, place := range rundir.TenantsOf(uid) {
				all = append(all, agent.Heritage{UID: uid, Tenants: place})
			}
		}
	}
	return all, nil
}

// reclaim holds the GPUs that it can and asks who holds the others to hand over. What
// it cannot hold yet it leaves in missed.
func (s *service) reclaim(ctx context.Context, uuids []string) ([]agent.Heritage, error) {
	var all []agent.Heritage
	s.missed = nil
	silent := map[string]bool{} // by user, of root's by process: whoever has many keeps nobody waiting for each
	for _, uuid := range uuids {
		err := s.locks.Take(ctx, uuid)
		var held *gpulock.HeldError
		if err == nil {
			continue
		}
		if !errors.As(err, &held) {
			return nil, err
		}
		var one agent.Heritage
		who := "user " + strconv.Itoa(held.Holder.UID)
		if held.Holder.UID == 0 {
			who = "process " + strconv.Itoa(held.Holder.PID)
		}
		if !silent[who] {
			if one, err = s.ask(ctx, held.Holder); err == nil {
				all = append(all, one)
				s.step("take-over-asked")
				err = s.outlastHolder(ctx, uuid)
			}
		}
		if errors.Is(err, ErrServed) {
			return nil, err
		}
		if err != nil {
			silent[who] = true
			s.missed = append(s.missed, uuid)
			s.options.Log.WarnContext(ctx, "somebody keeps the name of a GPU, which is served all the same", "gpu", uuid, "holder", held.Holder.String(), "error", err)
		}
	}
	return all, nil
}

// askInterval is between two tries to have what somebody keeps: an agent that was
// stopped may go on.
const askInterval = 5 * time.Second

// reclaimMissed tries again until ctx is done or every GPU is held.
func (s *service) reclaimMissed(ctx context.Context) {
	for len(s.missed) > 0 {
		select {
		case <-time.After(askInterval):
		case <-ctx.Done():
			return
		}
		left, err := s.reclaim(ctx, s.missed)
		if err == nil && len(left) > 0 {
			err = s.agent.Inherit(ctx, left, s.rules.Limits)
		}
		if err != nil {
			s.options.Log.WarnContext(ctx, "cannot take over from a user's own agent", "error", err)
		}
	}
}

// ask asks the holder of a GPU to hand over. It returns ErrServed if that is a system
// agent too.
func (s *service) ask(ctx context.Context, h gpulock.Holder) (agent.Heritage, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client, err := control.Dial(ctx, s.locks.Kind.Address(h.UUID))
	if err != nil {
		// Another system agent would have the lock in root's directory. The GPU's is advice among users' own agents.
		return agent.Heritage{}, fmt.Errorf("it does not answer here: %w", err)
	}
	defer func() { _ = client.Close() }()
	uid, pid, err := client.Peer()
	if err != nil {
		return agent.Heritage{}, err
	}
	if uid == 0 && !client.Info().Ephemeral {
		who := fmt.Sprintf("process %d", pid)
		if pid == 0 { // which the kernel tells of a process that this one does not see
			who = "a process of another pid namespace"
		}
		return agent.Heritage{}, fmt.Errorf("%w: %s: use that one, or end it first", ErrServed, who)
	}
	left, err := client.HandOver(ctx)
	if err != nil {
		return agent.Heritage{}, err
	}
	s.options.Log.InfoContext(ctx, "takes over from a user's own agent", "user", h.User, "pid", pid)
	return agent.Heritage{UID: uid, Tenants: left.Tenants}, nil
}

// outlastHolder takes a GPU whose holder is about to end.
func (s *service) outlastHolder(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, goneTime)
	defer cancel()
	for {
		err := s.locks.Take(ctx, uuid)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// handOver answers a system agent: this one grants nothing more, and ends when the
// answer was read. Its shares go on.
func (s *service) handOver(ctx context.Context, peer *control.Peer, _ struct{}) (control.Heritage, error) {
	if peer.UID != 0 {
		return control.Heritage{}, control.Errorf(control.CodeDenied, "only root's agent takes over")
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		return control.Heritage{}, ctx.Err()
	}
	err := s.agent.Leave(ctx)
	go func() {
		select {
		case <-peer.Done():
		case <-time.After(askTime):
		}
		s.end()
	}()
	return control.Heritage{Tenants: s.tenants}, err
}

// step tells a test how far the agent is.
func (s *service) step(name string) {
	if s.options.Step != nil {
		s.options.Step(name)
	}
}
