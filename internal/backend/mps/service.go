package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// openTime bounds how long a daemon may take until it serves, with all that is asked of it meanwhile.
	openTime = 20 * time.Second
	// serveTime is how long a new share waits for a daemon that has just died.
	serveTime = 10 * time.Second
	// exclusive is the compute mode in which nobody uses the GPU past the daemon's server.
	exclusive = "exclusive-process"
)

// service is the daemon of one GPU, supervised.
type service struct {
	backend    *Backend
	gpu        backend.GPU
	supervisor *mps.Supervisor
	stop       context.CancelFunc
	running    sync.WaitGroup

	mu sync.Mutex
	// down is why the daemon serves nobody, empty while it does; changed is closed when that changes.
	down    string
	changed chan struct{}
	// failing is why it did not start the last time.
	failing string
}

// Enter prepares a GPU for shares: nobody but the daemon's server may use it, where that can be set, and the daemon runs.
// A daemon that an earlier agent started is taken over. It is called again for a GPU that is prepared, and says then
// whether it still is.
func (b *Backend) Enter(ctx context.Context, gpu backend.GPU) error {
	b.mu.Lock()
	s := b.gpus[gpu.UUID]
	b.mu.Unlock()
	if s != nil {
		return s.await(ctx)
	}
	if why := b.Unsuited(gpu); why != "" {
		return fmt.Errorf("serve %s by MPS: %s", where(gpu), why)
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	daemon, err := b.daemon(gpu)
	if err != nil {
		return err
	}
	// What is wrong with the place is known before a mode is changed.
	if err := daemon.Dirs.Make(); err != nil {
		return fmt.Errorf("serve %s by MPS: %w", where(gpu), err)
	}
	_, absent := daemon.Find()
	if absent != nil && !errors.Is(absent, mps.ErrAbsent) {
		return fmt.Errorf("serve %s by MPS: %w", where(gpu), absent)
	}
	if b.setsModes(gpu) {
		err := b.options.Modes.Set(ctx, gpu.UUID, modes.ComputeMode, exclusive)
		if err != nil && absent != nil {
			return fmt.Errorf("serve %s by MPS: %w", where(gpu), err)
		}
		if err != nil { // the mode was lost, and shares live by the daemon: they go on
			b.options.Log.WarnContext(ctx, "programs can pass MPS by on a GPU", "gpu", gpu.Index, "error", err)
		}
	}
	s = &service{backend: b, gpu: gpu, changed: make(chan struct{})}
	s.supervisor = &mps.Supervisor{
		Daemon: daemon, Now: time.Now, Tell: s.told,
		Apart:  b.options.Apart,
		Limits: func() mps.Limits { return b.limits(gpu) }, Users: func() []int { return b.users(gpu.UUID) },
		Admitted: func() ([]int, bool) { return b.admitted(gpu.UUID) },
	}
	if err := s.supervisor.Open(ctx); err != nil {
		return errors.Join(fmt.Errorf("serve %s by MPS: %w", where(gpu), err), b.abandon(context.WithoutCancel(ctx), gpu, daemon))
	}
	b.enlist(ctx, s)
	return nil
}

// enlist begins to supervise a daemon that serves.
func (b *Backend) enlist(ctx context.Context, s *service) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	b.mu.Lock()
	b.gpus[s.gpu.UUID] = s
	tell := b.tell
	b.mu.Unlock()
	b.noteForeign(s.gpu, tell)
	if b.options.MultiUser != nil && b.options.MultiUser(s.gpu) && !b.ServesAll(s.gpu) {
		tell(noteOf(s.gpu, process.ID{}, fmt.Sprintf(
			"%s: multiUser has no effect with driver %s: one MPS server for several users needs %d or later, so one user at a time has shares there", where(s.gpu), b.options.Driver(), MultiUserSince)))
	}
	if major(b.options.Driver()) >= namespaces {
		tell(noteOf(s.gpu, process.ID{}, fmt.Sprintf(
			"%s: driver %s could keep the limits of each share in its MPS daemon; Divvy uses the commands of earlier drivers, and the limits are kept in the programs", where(s.gpu), b.options.Driver())))
	}
	s.running.Go(func() { s.supervisor.Run(ctx) })
}

// noteForeign tells of a daemon at the place where programs look that are told no other. It is left alone.
func (b *Backend) noteForeign(gpu backend.GPU, tell func(backend.Incident)) {
	if daemon, err := mps.At(cmp.Or(b.options.Default, mps.DefaultPipe)); err == nil {
		tell(noteOf(gpu, process.ID{}, fmt.Sprintf(
			"%s: %s is an MPS control daemon that is not Divvy's: programs without a share may use the GPU through it", where(gpu), daemon)))
	}
}

// abandon takes back what a failed Enter began, unless shares live by it.
func (b *Backend) abandon(ctx context.Context, gpu backend.GPU, daemon mps.Daemon) error {
	if b.inUse(gpu.UUID) {
		return nil
	}
	return b.clear(ctx, gpu, daemon)
}

// Leave ends a GPU's daemon, removes its directories and puts the GPU's modes back. It does so also for what an earlier
// agent left.
func (b *Backend) Leave(ctx context.Context, gpu backend.GPU) error {
	b.mu.Lock()
	s := b.gpus[gpu.UUID]
	delete(b.gpus, gpu.UUID)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	var ended error
	if s != nil {
		s.leave()
		ended = s.supervisor.End(ctx)
	}
	daemon, err := b.daemon(gpu)
	if err != nil {
		daemon = mps.Daemon{UUID: gpu.UUID, Dirs: b.dirs(gpu.UUID)} // which may still run, and is killed then
	}
	return errors.Join(ended, b.clear(ctx, gpu, daemon))
}

// clear leaves nothing of a GPU's daemon.
func (b *Backend) clear(ctx context.Context, gpu backend.GPU, daemon mps.Daemon) error {
	err := daemon.End(ctx)
	if err == nil {
		err = daemon.Dirs.Remove()
	}
	_ = os.Remove(b.options.Dir) // the directory of all daemons, which others may need
	if b.setsModes(gpu) {
		foreign, modeErr := b.options.Modes.PutBack(ctx, gpu.UUID)
		for _, f := range foreign {
			b.options.Log.WarnContext(ctx, "somebody changed a mode of a GPU, which is left so", "gpu", gpu.Index, "mode", f.Mode, "found", f.Found, "before", f.Before)
		}
		err = errors.Join(err, modeErr)
	}
	if err != nil {
		return fmt.Errorf("end MPS on %s: %w", where(gpu), err)
	}
	return nil
}

// daemon is that of a GPU, whether it runs or not.
func (b *Backend) daemon(gpu backend.GPU) (mps.Daemon, error) {
	program, environment, err := b.options.Program()
	if err != nil {
		return mps.Daemon{}, fmt.Errorf("serve %s by MPS: %w", where(gpu), err)
	}
	return mps.Daemon{
		UUID: gpu.UUID, Dirs: b.dirs(gpu.UUID), Program: program, Environment: environment, MultiUser: b.ServesAll(gpu),
	}, nil
}

// ServesAll reports whether one server serves the shares of several users of a GPU, which are not isolated from each
// other then.
func (b *Backend) ServesAll(gpu backend.GPU) bool {
	return b.options.MultiUser != nil && b.options.MultiUser(gpu) && ServesSeveral(b.options.Driver())
}

// ServesSeveral reports whether one server of this driver's daemon can serve several users.
func ServesSeveral(driver string) bool { return major(driver) >= MultiUserSince }

// MultiUserSince is the first driver whose daemon can let one server serve several users.
const MultiUserSince = 555

// limits are the loosest of a GPU's shares, all of the GPU where there is none.
func (b *Backend) limits(gpu backend.GPU) mps.Limits {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most mps.Limits
	for _, m := range b.members {
		if m.gpu == gpu.UUID {
			most.Percentage, most.Memory = max(most.Percentage, m.limits.Percentage), max(most.Memory, m.limits.Memory)
		}
	}
	if most.Percentage == 0 {
		return mps.Limits{Percentage: v1alpha1.MaxCores, Memory: gpu.Total}
	}
	return most
}

// users are those whose servers have to run on a GPU. One server serves all of them where the daemon serves several.
func (b *Backend) users(uuid string) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := map[int]bool{}
	for _, m := range b.members {
		if m.gpu == uuid && m.uid >= 0 {
			known[m.uid] = true
		}
	}
	all := slices.Sorted(maps.Keys(known))
	return all[:min(len(all), 1)] // the driver has one server at a time
}

// admitted are the users who have shares on a GPU. Of containers they are not known.
func (b *Backend) admitted(uuid string) (users []int, everybody bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if m.gpu == uuid {
			users, everybody = append(users, m.uid), everybody || m.uid < 0
		}
	}
	return users, everybody
}

// inUse reports whether a GPU has a share.
func (b *Backend) inUse(uuid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if m.gpu == uuid {
			return true
		}
	}
	return false
}

// await returns when the daemon serves, or why it does not after a while.
func (s *service) await(ctx context.Context) error {
	late := time.NewTimer(serveTime)
	defer late.Stop()
	for {
		s.mu.Lock()
		down, failing, changed := s.down, s.failing, s.changed
		s.mu.Unlock()
		if down == "" {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			if failing != "" {
				down = failing
			}
			return fmt.Errorf("%w: %s: %s", ErrUnserved, where(s.gpu), down)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %s: %w", ErrUnserved, where(s.gpu), down, ctx.Err())
		}
	}
}

// leave ends the supervision.
func (s *service) leave() {
	s.stop()
	s.running.Wait()
}

// told is called for each event of the daemon, one after another.
func (s *service) told(e mps.Event) {
	i := backend.Incident{UUID: s.gpu.UUID}
	switch e.Kind {
	case mps.EventTied:
		s.backend.tellOf(noteOf(s.gpu, process.ID{}, fmt.Sprintf(
			"%s: programs that use it by MPS fail when the agent's container ends: %v", where(s.gpu), e.Err)))
		return
	case mps.EventLimits:
		s.backend.tellOf(noteOf(s.gpu, process.ID{}, fmt.Sprintf(
			"%s: somebody changed the limits of its MPS control daemon, which were put right: %v. Programs that started meanwhile may have the changed ones", where(s.gpu), e.Err)))
		return
	case mps.EventHeld:
		s.backend.tellOf(noteOf(s.gpu, e.By, fmt.Sprintf(
			"%s: a program was connected to its MPS control daemon and silent, so that no other program was served: its connection was cut", where(s.gpu))))
		return
	case mps.EventDied:
		i.Text = "its MPS control daemon has ended: programs that use the GPU fail, and new ones are served when it runs again"
	case mps.EventFault:
		i.Text = fmt.Sprintf("a program made a fatal fault on the GPU, and all that MPS server %d serves fail with it: new ones are served when these have ended", e.Server)
	case mps.EventServes:
		i.Text, i.Over = "MPS serves new programs again; those that failed have to be started again", true
	case mps.EventFailed:
		i.Text = failure(e.Err, s.supervisor.Process())
	}
	s.mu.Lock()
	before, again := s.down, e.Kind == mps.EventFailed && s.failing != ""
	s.down, s.failing = i.Text, ""
	if e.Kind == mps.EventFailed {
		s.failing = i.Text
	}
	if i.Over {
		s.down = ""
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if again || i.Over && before == "" {
		return // it was told
	}
	s.backend.tellOf(i)
}

// failure says why a daemon does not serve, and what helps where it runs and cannot be reached.
func failure(err error, daemon process.ID) string {
	text := fmt.Sprintf("MPS does not serve: %v", err)
	if errors.Is(err, mps.ErrAbsent) && daemon.Alive() {
		text += fmt.Sprintf(": somebody removed its directory while it ran: end process %d, and the agent starts another daemon", daemon.PID)
	}
	return text
}

// tellOf tells who listens.
func (b *Backend) tellOf(i backend.Incident) {
	b.mu.Lock()
	tell := b.tell
	b.mu.Unlock()
	tell(i)
}
