package agent

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// beside stands for backend mps: it stands on pages, and a test tells what befalls its tenants.
type beside struct {
	backend.Backend
	all  bool   // one server serves all users
	old  string // UUID of a GPU that is too old
	own  process.ID
	tell func(backend.Incident)
}

func (b *beside) Plan(t backend.Tenant) (*backend.Plan, error) {
	t.MPSPipe = "/run/pipe"
	return b.Backend.Plan(t)
}
func (b *beside) Extends() backend.Backend           { return b.Backend }
func (b *beside) Report(tell func(backend.Incident)) { b.tell = tell }
func (b *beside) Own(id process.ID) bool             { return id == b.own }
func (b *beside) Unsuited(gpu backend.GPU) string {
	if gpu.UUID == b.old {
		return "it is too old"
	}
	return ""
}
func (b *beside) ServesAll(backend.GPU) bool { return b.all }

// startBeside starts an agent that also has backend mps; change is called for its configuration.
func (n *node) startBeside(change func(*beside, *Config)) (*running, *beside) {
	n.t.Helper()
	b := &beside{Backend: n.backend}
	c := n.settings(n.backend)
	c.Backends = registry.New(registry.Kind{Name: v1alpha1.BackendSlice, Backend: n.backend}, registry.Kind{Name: v1alpha1.BackendMPS, Backend: b})
	if change != nil {
		change(b, &c)
	}
	return n.startAs(c), b
}

// sideBySide asks for a share of MPS on the first GPU.
func sideBySide(cores int) control.CreateParams {
	p := askOn("0", gib)
	p.Request.Backend, p.Request.Cores = v1alpha1.BackendMPS, cores
	return p
}

// Ceilings may add up to more than the GPU: nobody is guaranteed anything.
func TestCeilingsAddUp(t *testing.T) {
	n := newNode(t)
	r, _ := n.startBeside(nil)
	for range 3 {
		created := n.grant(r, n.asker(os.Getuid()), sideBySide(70))
		if s := created.Tenant.Shares[0]; s.Mechanism != "MPS, ceiling 70 % of SMs" || s.Time != nil {
			t.Errorf("granted %q with time %+v", s.Mechanism, s.Time)
		}
	}
	if s := n.grant(r, n.asker(os.Getuid()), sideBySide(0)).Tenant.Shares[0]; s.Mechanism != "MPS, ceiling 100 % of SMs" {
		t.Errorf("without cores: %q", s.Mechanism)
	}
	if l := n.list(r); l.GPUs[0].Cores != 0 {
		t.Errorf("%d cores are guaranteed", l.GPUs[0].Cores)
	}
}

// A GPU serves one user by MPS at a time. A request of another one waits for the end of all that are there, unless the
// administrator lets several users share a server, which the grant then says.
func TestServerOfOneUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it asks as two users")
	}
	n := newNode(t)
	given := n.rules("backends: {mps: [0]}")
	r, b := n.startBeside(func(_ *beside, c *Config) { c.Rules = given })
	first := n.asker(1001)
	n.grant(r, first, sideBySide(30))
	n.grant(r, n.asker(1001), sideBySide(30))
	_, err := r.create(t.Context(), n.asker(1002).peer, sideBySide(30))
	if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "shares of user "+process.UserName(1001)) || !strings.Contains(err.Error(), "one user at a time") {
		t.Errorf("another user: %v", err)
	}
	b.all = true
	created := n.grant(r, n.asker(1002), sideBySide(30))
	if got := created.Tenant.Shares[0].Mechanism; !strings.HasSuffix(got, "not isolated from other users' shares") {
		t.Errorf("the grant says %q", got)
	}
}

// The driver takes so many programs. Each share counts as one at least, and as many as it has.
func TestServerIsFull(t *testing.T) {
	n := newNode(t)
	r, _ := n.startBeside(nil)
	peer := n.asker(os.Getuid()).peer
	p := sideBySide(10)
	p.Request.Memory = v1alpha1.Bytes(gib)
	for range mostClients {
		if _, err := r.create(t.Context(), peer, p); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.create(t.Context(), peer, p)
	if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "GPU 0 has the 48 programs that the driver lets share a GPU by mps") {
		t.Errorf("one more: %v", err)
	}
	r.config.Info.CUDA = moreClients
	if _, err := r.create(t.Context(), peer, p); err != nil {
		t.Errorf("with CUDA 13.1: %v", err)
	}
}

// What befalls a GPU's server is told to each of its tenants, by an event, in the list, and where its programs write their
// errors; and that it serves again as well.
func TestIncidentIsTold(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	lines := map[string]int{}
	r, b := n.startBeside(func(_ *beside, c *Config) {
		c.Tell = func(_ process.ID, _ int, line string) error {
			mu.Lock()
			defer mu.Unlock()
			lines[line]++
			return nil
		}
	})
	for _, name := range []string{"a", "b"} {
		p := sideBySide(30)
		p.Request.Name = name
		n.grant(r, n.asker(os.Getuid()), p)
	}
	elsewhere := askOn("1", gib)
	elsewhere.Request.Name = "c"
	n.grant(r, n.asker(os.Getuid()), elsewhere)
	b.tell(backend.Incident{UUID: firstID, Text: "it is gone"})
	l := n.list(r)
	for _, share := range l.Tenants {
		if want := map[string]string{"a": "it is gone", "b": "it is gone"}[share.Name]; share.Fault != want {
			t.Errorf("%s: fault %q, want %q", share.Name, share.Fault, want)
		}
	}
	told := 0
	for _, e := range l.Events {
		if e.Kind == control.EventFault && e.Text == "it is gone" {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d shares have an event: %+v", told, l.Events)
	}
	eventually(t, "the users are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return lines["divvy: share a, GPU 0: it is gone"] == 1 && lines["divvy: share b, GPU 0: it is gone"] == 1 && len(lines) == 2
	})
	b.tell(backend.Incident{UUID: firstID, Text: "it is back", Over: true})
	for _, share := range n.list(r).Tenants {
		if share.Fault != "" {
			t.Errorf("%s: %q", share.Name, share.Fault)
		}
	}
}

// A server is on the GPU for all shares, and is in none.
func TestServerIsNoOutsider(t *testing.T) {
	n := newNode(t)
	server := n.asker(os.Getuid())
	id := process.ID{PID: server.cmd.Process.Pid}
	found, err := process.Find(id.PID)
	if err != nil {
		t.Fatal(err)
	}
	r, b := n.startBeside(nil)
	n.grant(r, n.asker(os.Getuid()), sideBySide(30))
	n.driver.list(nvml.Process{PID: id.PID, Used: 30 << 20})
	eventually(t, "a process without a share is listed", func() bool { return len(n.list(r).Outside) == 1 })
	b.own = found
	eventually(t, "the server is not", func() bool { return len(n.list(r).Outside) == 0 })
}

// A GPU that does not suit the backend is passed by, and refused where it is named.
func TestUnsuitedGPU(t *testing.T) {
	n := newNode(t)
	r, b := n.startBeside(nil)
	b.old = firstID
	_, err := r.create(t.Context(), n.asker(os.Getuid()).peer, sideBySide(30))
	if control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "GPU 0: it is too old: use another backend") {
		t.Errorf("named: %v", err)
	}
	anywhere := sideBySide(30)
	anywhere.Request.Among, anywhere.Request.GPUs = nil, 0
	if got := n.grant(r, n.asker(os.Getuid()), anywhere).Tenant.Shares[0].Index; got != 1 {
		t.Errorf("any: it is on GPU %d", got)
	}
}

// What is refused for a GPU that does not suit the backend is explained so, and never chosen.
func TestUnsuitedGPUIsExplained(t *testing.T) {
	n := newNode(t)
	r, b := n.startBeside(nil)
	b.old = firstID
	verdicts, e := n.explained(r, os.Getuid(), sideBySide(30))
	if v := verdicts[v1alpha1.BackendMPS]; v.State != forms.Never || v.Chosen || !strings.Contains(v.Reason, "GPU 0: it is too old") || e.Refused == "" {
		t.Errorf("named: %+v, refused as %q", v, e.Refused)
	}
	anywhere := sideBySide(30)
	anywhere.Request.Among, anywhere.Request.GPUs = nil, 0
	verdicts, _ = n.explained(r, os.Getuid(), anywhere)
	v := verdicts[v1alpha1.BackendMPS]
	if !v.Chosen || len(v.GPUs) != 2 || v.GPUs[0].State != forms.Never || !strings.Contains(v.GPUs[0].Reason, "it is too old") || v.GPUs[1].State != forms.Fits {
		t.Errorf("any: %+v", v)
	}
}
