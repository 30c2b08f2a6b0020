package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// timesliced asks for memory of a GPU whose time the driver divides.
func timesliced(gpu string, memory uint64) control.CreateParams {
	p := askOn(gpu, memory)
	p.Request.Backend = v1alpha1.BackendTimeslice
	return p
}

// All shares of a GPU have one backend. Another one is refused there with the reason, goes elsewhere if it may, or waits
// until all of them have ended.
func TestSharesOfAGPUHaveOneBackend(t *testing.T) {
	n := newNode(t)
	r := n.start()
	first := n.asker(os.Getuid())
	n.grant(r, first, timesliced("0", gib))
	n.grant(r, n.asker(os.Getuid()), timesliced("0", gib))
	_, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn("0", gib))
	if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "GPU 0 has shares of backend timeslice") || !strings.Contains(err.Error(), "--wait") {
		t.Errorf("backend slice beside timeslice: %v", err)
	}
	if _, err := r.Prepare(t.Context(), claimed("a", gib, 30)); err == nil {
		t.Error("a claim beside timeslice was prepared")
	}
	elsewhere := n.grant(r, n.asker(os.Getuid()), ask(gib))
	if got := elsewhere.Tenant.Shares[0].Index; got != 1 {
		t.Errorf("a share of any GPU is on GPU %d", got)
	}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, timesliced("1", gib)); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("timeslice beside backend slice: %v", err)
	}
}

// A share of backend remote is one of backend slice to its GPU, whoever asks.
func TestRemoteSharesAreBesideSlice(t *testing.T) {
	n := newNode(t)
	r := n.start()
	remote := askOn("0", gib)
	remote.Request.Backend = v1alpha1.BackendRemote
	for _, p := range []control.CreateParams{askOn("0", gib), remote, askOn("0", gib)} {
		n.grant(r, n.asker(os.Getuid()), p)
	}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, timesliced("0", gib)); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "shares of backend slice") {
		t.Errorf("timeslice beside them: %v", err)
	}
	list := n.list(r)
	if list.GPUs[0].Form != v1alpha1.BackendSlice || list.Tenants[1].Shares[0].Backend != v1alpha1.BackendRemote {
		t.Errorf("GPU %+v with %+v", list.GPUs[0], list.Tenants[1].Shares)
	}
	remote.Request.Among = []string{"1"}
	n.grant(r, n.asker(os.Getuid()), remote)
	if form := n.list(r).GPUs[1].Form; form != v1alpha1.BackendSlice {
		t.Errorf("a GPU with such a share alone has form %q", form)
	}
}

// What is set of a share of backend remote does not depend on shares of backend slice beside it.
func TestRemoteShareIsSetBesideSlice(t *testing.T) {
	n := newNode(t)
	r := n.start()
	remote := askOn("0", gib)
	remote.Request.Backend = v1alpha1.BackendRemote
	owner := n.asker(os.Getuid())
	n.grant(r, n.asker(os.Getuid()), askOn("0", gib))
	made := n.grant(r, owner, remote)
	changed, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: made.Tenant.ID, Memory: new(v1alpha1.Bytes(2 * gib)), Cores: new(20)})
	if err != nil {
		t.Fatal(err)
	}
	if s := changed.Shares[0]; s.Limit != 2*gib || s.Cores != 20 || s.Backend != v1alpha1.BackendRemote {
		t.Errorf("the share is %+v", s)
	}
}

// A request that waits for a GPU with shares of another backend waits for the end of all of them, although there is
// memory enough, and who comes later does not keep it waiting.
func TestWaitingForAnotherBackend(t *testing.T) {
	n := newNode(t)
	r := n.start()
	holders := []*asker{n.asker(os.Getuid()), n.asker(os.Getuid())}
	for _, a := range holders {
		n.grant(r, a, askOn("1", gib))
	}
	answer := make(chan error, 1)
	peer := n.asker(os.Getuid()).peer
	p := timesliced("1", gib)
	p.Wait = true
	go func() {
		_, err := r.create(context.Background(), peer, p)
		answer <- err
	}()
	eventually(t, "the request waits", func() bool { return len(n.list(r).Waiting) == 1 })
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn("1", gib)); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("a later request of the backend that is there: %v", err)
	}
	for _, a := range holders {
		select {
		case err := <-answer:
			t.Fatalf("it was answered before the GPU was free: %v", err)
		default:
		}
		a.hangUp()
		a.kill()
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// Of the GPUs that have shares of another backend, it keeps the one on which least has to end.
func TestKeepsTheGPUThatDrainsSoonest(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn("0", 20*gib))
	n.grant(r, n.asker(os.Getuid()), askOn("1", gib))
	p := ask(gib)
	p.Request.Backend, p.Wait = v1alpha1.BackendTimeslice, true
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	peer := n.asker(os.Getuid()).peer
	go func() {
		_, err := r.create(ctx, peer, p)
		answer <- err
	}()
	eventually(t, "the request waits", func() bool { return len(n.list(r).Waiting) == 1 })
	if keeps := n.list(r).Waiting[0].Keeps; !slices.Equal(keeps, []int{1}) {
		t.Errorf("it keeps %v, want GPU 1", keeps)
	}
	cancel()
	<-answer
}

// What cannot be kept without dividing time is refused, at the beginning and later.
func TestTimesliceRefusesTime(t *testing.T) {
	n := newNode(t)
	r := n.start()
	for name, change := range map[string]func(r *v1alpha1.ShareRequest){
		"cores":   func(r *v1alpha1.ShareRequest) { r.Cores = 30 },
		"weight":  func(r *v1alpha1.ShareRequest) { r.Weight = 2 },
		"offline": func(r *v1alpha1.ShareRequest) { r.Class = v1alpha1.ClassOffline },
	} {
		p := timesliced("0", gib)
		change(&p.Request)
		if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, p); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "backend timeslice") {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := n.asker(os.Getuid())
	created := n.grant(r, a, timesliced("0", gib))
	set := control.SetParams{Tenant: created.Tenant.ID, Cores: new(30)}
	if _, err := r.set(t.Context(), a.peer, set); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "backend timeslice") {
		t.Errorf("cores later: %v", err)
	}
	set = control.SetParams{Tenant: created.Tenant.ID, Memory: new(v1alpha1.Bytes(2 * gib))}
	if changed, err := r.set(t.Context(), a.peer, set); err != nil || changed.Shares[0].Limit != 2*gib || changed.Shares[0].Backend != v1alpha1.BackendTimeslice {
		t.Errorf("memory later: %+v, %v", changed, err)
	}
}

// No launch of such a share waits, however many share the GPU, and a debt waits for a share that can pay it.
func TestTimesliceIsNotLimited(t *testing.T) {
	n := newNode(t)
	r := n.start()
	uuid := n.list(r).GPUs[0].UUID
	r.mu.Lock()
	r.debts.add(time.Now(), debt{Debtor: (&record{UID: os.Getuid()}).debtor(), UUID: uuid, Owed: page.MostOwed, Rate: 1, At: time.Now()})
	r.mu.Unlock()
	var dirs []string
	for range 3 {
		dirs = append(dirs, n.grant(r, n.asker(os.Getuid()), timesliced("0", gib)).Tenant.Dir)
	}
	eventually(t, "the shares are decided about", func() bool {
		return !slices.ContainsFunc(n.list(r).Tenants, func(v control.Tenant) bool { return v.Shares[0].Time == nil })
	})
	for _, dir := range dirs {
		if budget := budgetOf(t, dir); budget.Flags != 0 {
			t.Errorf("its budget is %+v", budget)
		}
		if got := balance(t, dir, nil); got < 0 {
			t.Errorf("it begins at %d", got)
		}
	}
}

// The backend of a share is found by its pages alone.
func TestBackendOutlivesTheRecords(t *testing.T) {
	n := newNode(t)
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), timesliced("0", gib))
	n.enter(created.Tenant.Dir, 0, os.Getpid(), gib/2)
	r.stopAgent()
	n.spoil(half)
	if err := os.Remove(tenantdir.Dir(created.Tenant.Dir).Record()); err != nil {
		t.Fatal(err)
	}
	r = n.start()
	if l := n.list(r); len(l.Tenants) != 1 || l.Tenants[0].Shares[0].Backend != v1alpha1.BackendTimeslice {
		t.Fatalf("found %+v", l.Tenants)
	}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn("0", gib)); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("backend slice beside it: %v", err)
	}
}

// budgetOf is what a tenant's page says of the time of its first GPU.
func budgetOf(t *testing.T, dir string) page.Budget {
	t.Helper()
	budgets, err := page.OpenBudgets(tenantdir.Dir(dir).Config())
	if err != nil {
		t.Fatal(err)
	}
	budget, err := budgets.Read(0)
	if err := errors.Join(err, budgets.Close()); err != nil {
		t.Fatal(err)
	}
	return budget
}

// One user's share of another backend would keep everybody else away from the GPU.
func TestBackendIsTheRightOfTheAgentsUser(t *testing.T) {
	n := newNode(t)
	r := n.start()
	other := n.asker(os.Getuid())
	other.peer.UID, other.peer.Maker = os.Getuid()+1, os.Getuid()+1
	if _, err := r.create(t.Context(), other.peer, timesliced("0", gib)); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("another user's share: %v", err)
	}
	n.grant(r, other, askOn("0", gib))
}

// Who may choose a backend keeps it when the system agent takes over; shares of others go on with backend slice.
func TestBackendOfWhatIsTakenOver(t *testing.T) {
	own := newNode(t)
	if err := os.Chmod(own.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := own.start()
	created := own.grant(r, own.asker(os.Getuid()), timesliced("0", gib))
	own.enter(created.Tenant.Dir, 0, os.Getpid(), gib/2)
	if err := r.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	system := newNode(t)
	next := system.start()
	if err := next.Inherit(t.Context(), []Heritage{{UID: os.Getuid(), Tenants: own.backend.dir}}, unlimited); err != nil {
		t.Fatal(err)
	}
	if l := system.list(next); len(l.Tenants) != 1 || l.Tenants[0].Shares[0].Backend != v1alpha1.BackendTimeslice {
		t.Fatalf("taken over: %+v", l.Tenants)
	}
	system.grant(next, system.asker(os.Getuid()), timesliced("0", gib)) // beside it
	if got := next.inherits(os.Getuid()+1, system.list(next).GPUs[0].UUID, v1alpha1.BackendTimeslice); got != v1alpha1.BackendSlice {
		t.Errorf("another user's goes on with %s", got)
	}
}

// Where the administrator says which backend GPUs have, everybody may choose it there, and nobody another one.
func TestAdministratorGivesBackends(t *testing.T) {
	n := newNode(t)
	r := n.ruled("backends: {timeslice: [1]}")
	n.grant(r, n.asker(bob), timesliced("1", gib))
	if got := n.grant(r, n.asker(ada), ask(gib)).Tenant.Shares[0].Index; got != 0 {
		t.Errorf("a share of the usual backend is on GPU %d", got)
	}
	any := ask(gib)
	any.Request.Backend = v1alpha1.BackendTimeslice
	if got := n.grant(r, n.asker(ada), any).Tenant.Shares[0].Index; got != 1 {
		t.Errorf("a share of backend timeslice is on GPU %d", got)
	}
	for _, uid := range []int{ada, os.Getuid()} {
		for p, want := range map[*control.CreateParams]string{
			new(askOn("1", gib)):      "gave GPU 1 backend timeslice, and the request is for backend slice: add --backend timeslice",
			new(timesliced("0", gib)): "gave GPU 0 backend slice, and the request is for backend timeslice: add --backend slice",
		} {
			p.Wait = true // in vain
			if text, code := n.refusal(r, uid, *p); code != control.CodeInvalid || !strings.Contains(text, want) {
				t.Errorf("user %d: %q (%s), want %q", uid, text, code, want)
			}
		}
	}
	both := ask(gib)
	both.Request.GPUs = 2
	if text, code := n.refusal(r, ada, both); code != control.CodeInvalid || !strings.Contains(text, "gave GPU 1 backend timeslice") {
		t.Errorf("two GPUs: %q", text)
	}
	gpus := n.list(r).GPUs
	if on0, on1 := r.inherits(os.Getuid(), gpus[0].UUID, v1alpha1.BackendTimeslice), r.inherits(ada, gpus[1].UUID, v1alpha1.BackendTimeslice); on0 != v1alpha1.BackendSlice || on1 != v1alpha1.BackendTimeslice {
		t.Errorf("taken over on GPU 0 with %s, on GPU 1 with %s", on0, on1)
	}
	r.mu.Lock()
	could := r.candidates(any.Request)
	r.mu.Unlock()
	if could != 1<<1 {
		t.Errorf("a request for backend timeslice could wait for %b", could)
	}
}

// Shares that are there when a GPU is given another backend stay, may change, and are joined by none.
func TestGPUIsGivenAnotherBackend(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("1", gib))
	n.enter(created.Tenant.Dir, 0, os.Getpid(), gib/2)
	r.stopAgent()
	r = n.ruled("backends: {timeslice: [1]}")
	p := timesliced("1", gib)
	if text, code := n.refusal(r, os.Getuid(), p); code != control.CodeRefused || !strings.Contains(text, "its shares of backend slice have to end first") {
		t.Errorf("beside it: %q", text)
	}
	set := control.SetParams{Tenant: created.Tenant.ID, Memory: new(v1alpha1.Bytes(2 * gib))}
	if _, err := r.set(t.Context(), a.peer, set); err != nil {
		t.Errorf("its change: %v", err)
	}
}
