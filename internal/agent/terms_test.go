package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// setTo changes a share's memory, cores and weight.
func (n *node) setTo(r *running, name string, memory uint64, weight int) error {
	n.t.Helper()
	bytes, policy := v1alpha1.Bytes(memory), v1alpha1.PolicyWeighted
	none := 0
	_, err := r.set(n.t.Context(), control.NewPeer(self(), os.Getuid(), nil, nil), control.SetParams{Tenant: name, Memory: &bytes, Policy: &policy, Cores: &none, Weight: &weight})
	return err
}

// mustTell checks what an agent counts and what the processes of share train read.
func (n *node) mustTell(r *running, dir string, limit uint64, weight int) {
	n.t.Helper()
	l := n.list(r)
	sum := uint64(0)
	for _, t := range l.Tenants {
		for _, s := range t.Shares {
			if s.UUID == firstID {
				sum += s.Limit
			}
			if t.Name == "train" && (s.Limit != limit || s.Weight != weight) {
				n.t.Errorf("the agent says %+v, want %d bytes and weight %d", s, limit, weight)
			}
		}
	}
	if sum > l.GPUs[0].Capacity || l.GPUs[0].Granted > l.GPUs[0].Capacity {
		n.t.Errorf("%d bytes are granted, counted are %d, and the GPU has %d", sum, l.GPUs[0].Granted, l.GPUs[0].Capacity)
	}
	theirs, err := page.ReadConfig(tenantdir.Dir(dir).Config())
	if err != nil || theirs.Device[0].Limit != limit || int(theirs.Device[0].Weight) != weight {
		n.t.Errorf("its processes read %d bytes and weight %d, %v; want %d and %d", theirs.Device[0].Limit, theirs.Device[0].Weight, err, limit, weight)
	}
}

// A user's own agent and the system agent serve a share in turn. What was set last
// counts, whichever set it, also when the next agent has a record of its own.
func TestTheLatestChangeCounts(t *testing.T) {
	own, left, first := bequest(t)
	defer first.leave()
	system := newNode(t)
	dir := own.list(own.start()).Tenants[0].Dir
	inherit := func() *running {
		r := system.start()
		if err := r.Inherit(t.Context(), left, unlimited); err != nil {
			t.Fatal(err)
		}
		return r
	}
	limits := []uint64{5 * gib, 30 * gib, 8 * gib, 60 * gib, 2 * gib}
	for i, limit := range limits {
		r := inherit()
		if i > 0 {
			system.mustTell(r, dir, limits[i-1]+gib, i+20)
		}
		if err := system.setTo(r, "train", limit, i+2); err != nil {
			t.Fatal(err)
		}
		system.mustTell(r, dir, limit, i+2)
		r.stopAgent()
		again := inherit() // a system agent after the system agent
		system.mustTell(again, dir, limit, i+2)
		again.stopAgent()
		o := own.start()
		own.mustTell(o, dir, limit, i+2)
		if err := own.setTo(o, "train", limit+gib, i+21); err != nil {
			t.Fatal(err)
		}
		o.stopAgent()
		if i == 2 { // a record without a checkpoint is an old one too
			own.spoil(func([]byte) []byte { return nil })
			system.spoil(func([]byte) []byte { return nil })
		}
		o = own.start()
		own.mustTell(o, dir, limit+gib, i+21)
		o.stopAgent()
	}
}

// What a user's own agent gave more than there is beside the shares of others is taken
// back, and a user who writes to the page gets no more than that either.
func TestGrowthElsewhereFits(t *testing.T) {
	own, left, first := bequest(t)
	defer first.leave()
	dir := own.list(own.start()).Tenants[0].Dir
	system := newNode(t)
	r := system.start()
	if err := r.Inherit(t.Context(), left, unlimited); err != nil {
		t.Fatal(err)
	}
	capacity := system.list(r).GPUs[0].Capacity
	system.grant(r, system.asker(0), askOn(firstID, 40*gib))
	r.stopAgent()
	if err := page.UpdateConfig(tenantdir.Dir(dir).Config(), func(c *page.Config) {
		c.Changed, c.Device[0].Limit, c.Device[0].Policy, c.Device[0].Cores = 1<<63, 1<<45, 77, 90
	}); err != nil {
		t.Fatal(err)
	}
	r = system.start()
	system.mustTellSum(r, capacity)
	if err := page.UpdateConfig(tenantdir.Dir(dir).Config(), func(c *page.Config) {
		c.Changed, c.Device[0].Limit, c.Device[0].Policy, c.Device[0].Cores = 1<<63+1, 1<<45, page.PolicyFixed, 90
	}); err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	r = system.start()
	system.mustTellSum(r, capacity)
}

// mustTellSum checks that the grants of the first GPU fit, as pages and ledger tell.
func (n *node) mustTellSum(r *running, capacity uint64) {
	n.t.Helper()
	ledger, told := uint64(0), uint64(0)
	for _, t := range n.list(r).Tenants {
		if t.Shares[0].UUID != firstID {
			continue
		}
		d := tenantdir.Dir(t.Dir)
		path := d.Config()
		if d.Adopted() {
			path = d.Theirs()
		}
		c, err := page.ReadConfig(path)
		if err != nil {
			n.t.Fatal(err)
		}
		ledger, told = ledger+t.Shares[0].Limit, told+c.Device[0].Limit
	}
	if ledger > capacity || told != ledger {
		n.t.Errorf("pages grant %d bytes, the ledger %d, and the GPU has %d", told, ledger, capacity)
	}
}

// A share on more GPUs than its user may have keeps what its contexts take there, and
// that is said.
func TestInheritanceIsBoundedInGPUs(t *testing.T) {
	_, left, first := bequest(t)
	defer first.leave()
	n := newNode(t)
	r := n.start()
	if err := r.Inherit(t.Context(), left, func(int) agentconfig.Limits { return agentconfig.Limits{GPUs: 1} }); err != nil {
		t.Fatal(err)
	}
	l := n.list(r)
	if len(l.Tenants) != 2 || len(l.Tenants[1].Shares) != 2 {
		t.Fatalf("taken over: %+v", l.Tenants)
	}
	if got := l.Tenants[1].Shares[1].Limit; got > gib {
		t.Errorf("the share of the second GPU has %d bytes", got)
	}
	if l.Tenants[0].Shares[0].Limit != 20*gib || l.Tenants[1].Shares[0].Limit != 3*gib {
		t.Errorf("shares of the first GPU are bounded: %+v", l.Tenants)
	}
	said := false
	for _, e := range l.Events {
		said = said || e.Kind == control.EventLimit && strings.Contains(e.Text, "shares on 1 GPUs")
	}
	if !said {
		t.Errorf("nothing is said: %+v", l.Events)
	}
}

// The time of a share that is taken over counts from the start of its oldest process,
// whatever its user did to its files since.
func TestInheritedTimeCountsFromTheStart(t *testing.T) {
	own, left, first := bequest(t)
	defer first.leave()
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(24 * time.Hour)
	for _, dir := range own.directories() {
		d := tenantdir.Dir(dir)
		if err := os.Chtimes(d.State(), later, later); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(d.Record()); err != nil {
			t.Fatal(err)
		}
	}
	mapState(t, first.file)
	n := newNode(t)
	r := n.start()
	if err := r.Inherit(t.Context(), left, unlimited); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range n.list(r).Tenants {
		if tenant.Shares[0].Used == gib && tenant.Created.Sub(self.Started()).Abs() > time.Minute {
			t.Errorf("%s runs since %s; its process since %s", tenant.Name, tenant.Created, self.Started())
		}
	}
}

// mapState maps a tenant's state page, as its processes do.
func mapState(t *testing.T, file *os.File) {
	t.Helper()
	memory, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
}

// A share on a GPU that the driver was silent about at the start cannot be changed, and
// nobody is told that the GPU does not exist.
func TestChangeOnAGPUThatIsLeftOut(t *testing.T) {
	n := newNode(t)
	r := n.start()
	hers := n.asker(ada)
	created := n.grant(r, hers, askOn("1", gib))
	r.mu.Lock()
	r.gpus = slices.DeleteFunc(slices.Clone(r.gpus), func(g backend.GPU) bool { return g.Index == 1 })
	r.mu.Unlock()
	memory := v1alpha1.Bytes(2 * gib)
	for _, c := range []struct {
		leftOut []int
		want    string
	}{{[]int{1}, "the driver did not answer about GPU 1 when the agent started"}, {nil, "the driver did not list it"}} {
		r.NoteLeftOut(c.leftOut, nil, nil)
		_, err := r.set(t.Context(), hers.peer, control.SetParams{Tenant: created.Tenant.ID, Memory: &memory})
		if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "exist") {
			t.Errorf("left out %v: %v, want %q", c.leftOut, err, c.want)
		}
	}
}
