package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

func TestListShowsAShare(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(4*gib))
	if len(created.Edits.Env) != 1 || created.Tenant.Name != "train_it" || created.Tenant.Shares[0].Limit != 4*gib {
		t.Errorf("created %+v", created)
	}
	n.enter(created.Tenant.Dir, 3, 4711, 96<<20)
	l := n.list(r)
	if len(l.Tenants) != 1 || len(l.GPUs) != 2 {
		t.Fatalf("listing %+v", l)
	}
	// The smaller GPU is the fuller one; 4 GiB go there.
	if g := l.GPUs[1]; g.Granted != 4*gib || g.Capacity != 24*gib {
		t.Errorf("GPU %+v", g)
	}
	s := l.Tenants[0].Shares[0]
	if s.Used != 96<<20 || s.Peak != 96<<20 || s.Index != 1 || len(s.Process) != 1 || s.Process[0] != (control.Process{PID: 4711, Used: 96 << 20}) {
		t.Errorf("share %+v", s)
	}
}

// A tenant is held by its asker's process, then by its processes in slots.
func TestShareEndsWithItsLastProcess(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(4*gib))
	daemon := n.enter(created.Tenant.Dir, 0, 4711, gib)
	a.hangUp()
	a.kill()
	eventually(t, "the asker is missed", func() bool { return !n.list(r).Tenants[0].Held })
	if l := n.list(r); len(l.Tenants) != 1 || l.GPUs[1].Granted != 4*gib {
		t.Fatalf("a share ended although a process is left: %+v", l)
	}
	daemon.leave()
	eventually(t, "the tenant ends", n.gone(r, created))
	if _, err := os.Stat(filepath.Join(n.dir, "tenants.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is left: %v", err)
	}
	if l := n.list(r); l.GPUs[1].Granted != 0 {
		t.Errorf("granted %d", l.GPUs[1].Granted)
	}
}

// Memory that a descriptor keeps is not free although its share has no process: the
// share stays, and says why, until the descriptor is closed.
func TestShareStaysWhileADescriptorKeepsItsMemory(t *testing.T) {
	n := newNode(t)
	n.interval = 5 * time.Millisecond
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(4*gib))
	process := n.enter(created.Tenant.Dir, 0, 4711, gib)
	process.export(gib)
	process.die()
	a.hangUp()
	a.kill()
	eventually(t, "the asker is missed", func() bool { return !n.list(r).Tenants[0].Held })
	for range 3 {
		l := n.list(r)
		if len(l.Tenants) != 1 || l.GPUs[1].Granted != 4*gib {
			t.Fatalf("the share ended although its memory is held: %+v", l)
		}
		if s := l.Tenants[0].Shares[0]; s.Used != gib || s.ByDescriptor != gib || len(s.Process) > 0 {
			t.Fatalf("%+v", s)
		}
	}
	n.closed.Store(true)
	eventually(t, "the tenant ends", n.gone(r, created))
}

// Whoever asks for its end need not find the descriptor's holder first, but is told.
func TestStopEndsAShareThatADescriptorKeeps(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(4*gib))
	process := n.enter(created.Tenant.Dir, 0, 4711, gib)
	process.export(gib)
	process.die()
	a.hangUp()
	if _, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID, Grace: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if !n.gone(r, created)() {
		t.Fatal("stop answered before the tenant had ended")
	}
	events := n.list(r).Events
	if last := events[len(events)-1]; last.Kind != control.EventEnded || !strings.Contains(last.Text, "still keep 1024 MiB of GPU 1") {
		t.Errorf("%+v", last)
	}
}

// A program that becomes another keeps its tenant although its connection ends.
func TestProcessHoldsWithoutConnection(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(gib))
	a.hangUp()
	eventually(t, "the end of the connection is seen", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.tenants[created.Tenant.ID].connection
	})
	if l := n.list(r); len(l.Tenants) != 1 || !l.Tenants[0].Held {
		t.Fatalf("tenants %+v", l.Tenants)
	}
	a.kill()
	eventually(t, "the tenant ends", n.gone(r, created))
}

// Deaths are noticed by themselves: the sweep comes once an hour here. What the
// reaper does to the page must not look like another death.
func TestDeathIsReapedAtOnce(t *testing.T) {
	n := newNode(t)
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), ask(4*gib))
	process := n.enter(created.Tenant.Dir, 2, 4711, gib)
	process.die()
	eventually(t, "the dead is reaped", func() bool {
		s, err := page.ReadState(tenantdir.Dir(created.Tenant.Dir).State(), 1)
		return err == nil && !s.Dead() && s.Usage[0].Used == 0
	})
	var told bool
	eventually(t, "it is told", func() bool {
		for _, e := range n.list(r).Events {
			told = told || e.Kind == control.EventReaped && strings.Contains(e.Text, "1024 MiB")
		}
		return told
	})
	eventually(t, "all notices are followed up", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.tenants[created.Tenant.ID].notices.Load() == 0
	})
	if got := n.reaps.Load(); got != 1 {
		t.Errorf("reaped %d times", got)
	}
}

// A tenant whose processes die all the time costs no more of a processor than its
// pace allows, and one death among many peaceful ones is still followed up at once.
func TestEndlessDeathsAreFollowedAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.idle()
		dir := n.prepared(&running{Agent: a}, claimed("a", gib, 0))
		dies := func() {
			n.enter(dir, 0, 4711, gib).die()
			a.lookSoon(t.Context(), tenancyID("a"))
		}
		const deaths = 3000
		for range deaths {
			dies()
			time.Sleep(time.Millisecond) // of the bubble's clock
		}
		a.running.Wait()
		// Some follow-ups look again, as more have died meanwhile.
		if got, steps := int(n.reaps.Load()), int((deaths*time.Millisecond+ofTenant.ahead)/ofTenant.step); got < steps/2 || got > 2*steps {
			t.Errorf("reaped %d times in %d ms, want about %d", got, deaths, steps)
		}
		time.Sleep(ofTenant.ahead)
		before := time.Now()
		dies()
		a.running.Wait()
		if took := time.Since(before); took > 0 {
			t.Errorf("one death is followed up after %s", took)
		}
	})
}

func TestSweepFindsWhatNoNoticeTold(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), ask(4*gib))
	r.notices.Remove(created.Tenant.ID)
	n.enter(created.Tenant.Dir, 2, 4711, gib).die()
	eventually(t, "the dead is reaped", func() bool { return n.reaps.Load() > 0 })
}

// Garbage in one tenant's page is that tenant's trouble.
func TestGarbageIsReportedAndStaysAtHome(t *testing.T) {
	n := newNode(t)
	r := n.start()
	good := n.grant(r, n.asker(os.Getuid()), ask(gib))
	a := n.asker(os.Getuid())
	bad := n.grant(r, a, ask(gib))
	n.enter(good.Tenant.Dir, 0, 4711, gib/2)
	process := n.enter(bad.Tenant.Dir, 0, 4712, gib/2)
	for _, damage := range []func(path string) error{
		func(path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = file.WriteAt([]byte(strings.Repeat("garbage!", 20000)), 0)
			return errors.Join(err, file.Close())
		},
		func(path string) error { return os.Truncate(path, 10) },
	} {
		if err := damage(tenantdir.Dir(bad.Tenant.Dir).State()); err != nil {
			t.Fatal(err)
		}
		l := n.list(r)
		if len(l.Tenants) != 2 || l.Tenants[0].Fault != "" || l.Tenants[0].Shares[0].Used != gib/2 || l.Tenants[1].Fault == "" {
			t.Fatalf("tenants %+v", l.Tenants)
		}
	}
	// Its lock still tells that somebody lives, so its memory stays granted.
	a.hangUp()
	a.kill()
	eventually(t, "the asker is missed", func() bool { return !n.list(r).Tenants[1].Held })
	process.die()
	eventually(t, "the damaged tenant ends", func() bool { return len(n.list(r).Tenants) == 1 })
	faults := 0
	for _, e := range n.list(r).Events {
		if e.Kind == control.EventFault {
			faults++
		}
	}
	if faults < 1 || faults > 3 {
		t.Errorf("%d faults told: %+v", faults, n.list(r).Events)
	}
}

// A tenant has no more of the machine's memory in its pages than they take.
func TestWhatIsBeyondAPageIsCutOff(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", gib, 0))
	path := tenantdir.Dir(dir).State()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	n.enter(dir, 2, 4711, gib/2)
	for what, grow := range map[string]func() error{
		"bytes": func() error { return os.Truncate(path, gib) },
		"blocks": func() error {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			return unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, before.Size(), 16<<20)
		},
	} {
		if err := grow(); errors.Is(err, unix.EOPNOTSUPP) {
			continue // by this file system
		} else if err != nil {
			t.Fatal(err)
		}
		r.sweep(t.Context())
		var after unix.Stat_t
		if err := unix.Stat(path, &after); err != nil || after.Size != before.Size() || after.Blocks*512 > before.Size()+4<<20 {
			t.Errorf("%s: %d bytes, %d blocks, %v; the page has %d bytes", what, after.Size, after.Blocks, err, before.Size())
		}
		l := n.list(r)
		if last := l.Events[len(l.Events)-1]; last.Kind != control.EventFault || last.Tenant != "team/a" || !strings.Contains(last.Text, "cut off") {
			t.Errorf("%s: the events are %+v", what, l.Events)
		}
		if l.Tenants[0].Shares[0].Used != gib/2 || l.Tenants[0].Fault != "" {
			t.Errorf("%s: the tenant is %+v", what, l.Tenants[0])
		}
	}
	// Whose pages are not known to be of this layout, nothing is taken from.
	if err := errors.Join(os.WriteFile(tenantdir.Dir(dir).Config(), []byte("another layout"), 0o600), os.Truncate(path, gib)); err != nil {
		t.Fatal(err)
	}
	r.sweep(t.Context())
	if after, err := os.Stat(path); err != nil || after.Size() != gib {
		t.Errorf("%v, %v", after, err)
	}
}

func TestRestartFindsTenantsAgain(t *testing.T) {
	n := newNode(t)
	r := n.start()
	stays, ends := n.asker(os.Getuid()), n.asker(os.Getuid())
	kept := n.grant(r, stays, ask(6*gib))
	lost := n.grant(r, ends, ask(gib))
	n.enter(kept.Tenant.Dir, 0, 4711, gib)
	r.stopAgent()
	stays.hangUp() // the agent's end closes connections
	ends.hangUp()
	ends.kill()

	r = n.start()
	eventually(t, "the tenant that ended meanwhile is found out", func() bool {
		_, err := os.Stat(lost.Tenant.Dir)
		return errors.Is(err, os.ErrNotExist)
	})
	l := n.list(r)
	if len(l.Tenants) != 1 || l.Tenants[0].ID != kept.Tenant.ID || !l.Tenants[0].Held || l.Tenants[0].Shares[0].Used != gib {
		t.Fatalf("tenants %+v", l.Tenants)
	}
	if l.GPUs[1].Granted != 6*gib {
		t.Errorf("granted %d", l.GPUs[1].Granted)
	}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn("1", 19*gib)); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("the ledger forgot the tenant: %v", err)
	}
	stays.kill()
	eventually(t, "the end of the old holder is seen", func() bool { return !n.list(r).Tenants[0].Held })
}

// An agent that died between the checkpoint and the page finishes the change.
func TestRestartFinishesAChange(t *testing.T) {
	n := newNode(t)
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), ask(6*gib))
	r.mu.Lock()
	r.tenants[created.Tenant.ID].Shares[0].Limit = 3 * gib
	err := r.save()
	r.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	n.start()
	c, err := page.ReadConfig(tenantdir.Dir(created.Tenant.Dir).Config())
	if err != nil || c.Device[0].Limit != 3*gib {
		t.Errorf("limit %d, %v", c.Device[0].Limit, err)
	}
}

func TestUnreadableCheckpointIsSetAside(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.dir, "tenants.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.start()
	if _, err := os.Stat(path + ".unreadable"); err != nil {
		t.Error(err)
	}
	if l := n.list(r); len(l.Events) != 1 || l.Events[0].Kind != control.EventFault {
		t.Errorf("events %+v", l.Events)
	}
}

// What cannot be read now may be whole: an agent that began without it would grant
// again what its tenants have.
func TestCheckpointThatCannotBeReadIsKept(t *testing.T) {
	n := newNode(t)
	settings := n.settings(n.backend)
	loop := filepath.Join(n.dir, "loop")
	settings.Checkpoint = filepath.Join(loop, "tenants.json")
	if err := os.Symlink(loop, loop); err != nil { // no permission would keep root from reading
		t.Fatal(err)
	}
	if _, err := New(t.Context(), settings); err == nil || !strings.Contains(err.Error(), "find the last agent's tenants") {
		t.Errorf("%v", err)
	}
}

func askOn(gpu string, memory uint64) control.CreateParams {
	p := ask(memory)
	p.Request.Among = []string{gpu}
	return p
}

func TestFailedPreparationIsTakenBack(t *testing.T) {
	n := newNode(t)
	n.backend.fail = page.ErrFull
	r := n.start()
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, ask(gib)); !errors.Is(err, page.ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	l := n.list(r)
	if len(l.Tenants) != 0 || l.GPUs[0].Granted+l.GPUs[1].Granted != 0 {
		t.Errorf("listing %+v", l)
	}
}
