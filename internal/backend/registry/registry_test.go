package registry

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// maker is a backend that knows some GPUs and tenants.
type maker struct {
	backend.Backend
	gpus    []backend.GPU
	found   []backend.Found
	fault   error
	owns    string
	counts  bool
	asked   []string // the tenants that it was asked about
	notices *noted
}

func (m *maker) Discover(context.Context) ([]backend.GPU, error)  { return m.gpus, m.fault }
func (m *maker) Recover(context.Context) ([]backend.Found, error) { return m.found, m.fault }
func (m *maker) Container(int) string                             { return m.owns }

func (m *maker) Owner(tenants []backend.Tenant, _ int) (string, bool) {
	m.ask(tenants)
	return m.owns, m.owns == ""
}

func (m *maker) Counts(tenants []backend.Tenant, _ process.ID) bool {
	m.ask(tenants)
	return m.counts
}

func (m *maker) ask(tenants []backend.Tenant) {
	for _, t := range tenants {
		m.asked = append(m.asked, t.ID)
	}
}

func (m *maker) Notices() (backend.Notices, error) { return m.notices, m.fault }

// noted are notices that note whom they are asked to watch.
type noted struct {
	added, removed []string
	ran, closed    bool
}

func (n *noted) Add(t backend.Tenant) error            { n.added = append(n.added, t.ID); return nil }
func (n *noted) Remove(id string)                      { n.removed = append(n.removed, id) }
func (n *noted) Run(context.Context, backend.Listener) { n.ran = true }
func (n *noted) Close()                                { n.closed = true }

// extension makes its tenants with another backend.
type extension struct{ *maker }

func (e extension) Extends() backend.Backend { return e.maker }

const divided v1alpha1.Backend = "divided"

// machine has a backend, another one that extends it, and a third with tenants of its own.
func machine() (r *Registry, paged, other *maker) {
	gpus := func(uuids ...string) (all []backend.GPU) {
		for _, uuid := range uuids {
			all = append(all, backend.GPU{UUID: uuid})
		}
		return all
	}
	paged = &maker{gpus: gpus("a", "b"), found: []backend.Found{{Tenant: backend.Tenant{ID: "s"}}, {Tenant: backend.Tenant{ID: "t"}}}, notices: &noted{}}
	other = &maker{gpus: gpus("b", "c"), found: []backend.Found{{Tenant: backend.Tenant{ID: "d"}}}, notices: &noted{}}
	other.gpus[0].Name = "later"
	return New(Kind{v1alpha1.BackendSlice, paged}, Kind{v1alpha1.BackendTimeslice, extension{paged}}, Kind{divided, other}), paged, other
}

// tenants has one of each backend.
var tenants = []backend.Tenant{{ID: "s", Backend: v1alpha1.BackendSlice}, {ID: "t", Backend: v1alpha1.BackendTimeslice}, {ID: "d", Backend: divided}}

func TestOf(t *testing.T) {
	r, paged, other := machine()
	for name, want := range map[v1alpha1.Backend]backend.Backend{
		"": paged, v1alpha1.BackendSlice: paged, v1alpha1.BackendTimeslice: extension{paged}, divided: other, "of a later version": paged,
	} {
		if got := r.Of(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
		if known := name != "of a later version"; r.Has(name) != known {
			t.Errorf("%q: has is not %v", name, known)
		}
	}
}

// Every GPU and every tenant is found once.
func TestAllAreAsked(t *testing.T) {
	r, _, other := machine()
	gpus, err := r.Discover(t.Context())
	if err != nil || !slices.Equal(gpus, []backend.GPU{{UUID: "a"}, {UUID: "b"}, {UUID: "c"}}) {
		t.Errorf("GPUs %v, %v", gpus, err)
	}
	other.fault = errors.New("a fault")
	if _, err := r.Discover(t.Context()); !errors.Is(err, other.fault) {
		t.Errorf("GPUs with a fault: %v", err)
	}
	found, err := r.Recover(t.Context())
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Tenant.ID)
	}
	if want := []string{"s", "t", "d"}; !errors.Is(err, other.fault) || !slices.Equal(ids, want) {
		t.Errorf("found %v, %v; want %v and the fault", ids, err, want)
	}
}

// Each backend is asked about its own tenants alone.
func TestOwnTenants(t *testing.T) {
	r, paged, other := machine()
	if owner, unread := r.Owner(tenants, 1); owner != "" || !unread {
		t.Errorf("owned by nobody: %q, %v", owner, unread)
	}
	other.owns, other.counts = "d", true
	if owner, unread := r.Owner(tenants, 1); owner != "d" || unread {
		t.Errorf("owned: %q, %v", owner, unread)
	}
	if r.Container(1) != "d" || !r.Counts(tenants, process.ID{}) || r.Counts(tenants[:2], process.ID{}) {
		t.Error("whose a process is was answered wrong")
	}
	for _, id := range paged.asked {
		if id == "d" {
			t.Error("the first backend was asked about the other's tenant")
		}
	}
	if slices.ContainsFunc(other.asked, func(id string) bool { return id != "d" }) || len(other.asked) != 3 {
		t.Errorf("the other one was asked about %v", other.asked)
	}
}

func TestNotices(t *testing.T) {
	r, paged, other := machine()
	n, err := r.Notices()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range tenants {
		if err := n.Add(one); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(paged.notices.added, []string{"s", "t"}) || !slices.Equal(other.notices.added, []string{"d"}) {
		t.Errorf("watched are %v and %v", paged.notices.added, other.notices.added)
	}
	n.Remove("d")
	n.Run(t.Context(), backend.Listener{})
	n.Close()
	if len(other.notices.removed) != 1 || !paged.notices.ran || !other.notices.ran || !paged.notices.closed || !other.notices.closed {
		t.Errorf("notices are %+v and %+v", paged.notices, other.notices)
	}
}
