package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// swapping starts an agent that gives so much host memory to shares.
func (n *node) swapping(memory uint64) *running {
	n.t.Helper()
	c := n.settings(n.backend)
	c.SwapMemory = memory
	return n.startAs(c)
}

// swap asks for a swap share of a GPU.
func swap(gpu string, memory, kept uint64) control.CreateParams {
	p := askOn(gpu, memory)
	p.Request.Swap = true
	if kept > 0 {
		p.Request.Kept = v1alpha1.Bytes(kept)
	}
	return p
}

func suspending(gpu string, memory uint64) control.CreateParams {
	p := askOn(gpu, memory)
	p.Request.SuspendAfter = v1alpha1.MinSuspendAfter
	return p
}

// A swap share takes of its GPU what it keeps and the room of the largest turn, and of the host all of its memory.
func TestSwapIsGranted(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	first := n.grant(r, n.asker(0), swap("1", 20*gib, 2*gib)).Tenant
	second := n.grant(r, n.asker(0), swap("1", 12*gib, 3*gib)).Tenant
	if s := first.Shares[0]; s.Limit != 20*gib || *s.Swap != (control.Swap{Kept: 2 * gib, Room: 18 * gib}) {
		t.Errorf("%+v, %+v", s, s.Swap)
	}
	l := n.list(r)
	if g := l.GPUs[1]; g.Granted != 23*gib || g.TurnRoom != 18*gib || g.Swapped != 27*gib {
		t.Errorf("%+v", g)
	}
	if *l.SwapMemory != (control.HostMemory{Allowed: 64 * gib, Granted: 32 * gib}) {
		t.Errorf("%+v", l.SwapMemory)
	}
	wanted := r.wanted(r.tenants[second.ID])
	if s := wanted.Shares[0]; !wanted.Swap || wanted.Suspends || s.Limit != 12*gib || s.Kept != 3*gib {
		t.Errorf("the backend is given %+v", wanted)
	}
	const full = "GPU 1 has 1Gi of 24Gi not granted and the share needs 2Gi; 0/train_it holds 20Gi and 0/train_it-2 holds 3Gi"
	if got, _ := n.refusal(r, 0, askOn("1", 2*gib)); !strings.Contains(strings.ReplaceAll(got, "root", "0"), full) {
		t.Errorf("an ordinary one: %s", got)
	}
	n.grant(r, n.asker(0), suspending("0", gib))
	l = n.list(r)
	if l.SwapMemory.Granted != 32*gib {
		t.Errorf("one that is not suspended: %+v", l.SwapMemory)
	}
	if s := l.Tenants[2].Shares[0]; s.SuspendAfter != v1alpha1.MinSuspendAfter || s.Swap != nil || !r.wanted(r.tenants[l.Tenants[2].ID]).Suspends {
		t.Errorf("%+v", s)
	}
}

func TestSwapIsRefused(t *testing.T) {
	edit := func(p control.CreateParams, change func(*v1alpha1.ShareRequest)) control.CreateParams {
		change(&p.Request)
		return p
	}
	for name, c := range map[string]struct {
		memory uint64 // of the host
		ask    control.CreateParams
		code   control.Code
		want   string
	}{
		"none is allowed":                  {0, swap("1", 4*gib, 0), control.CodeInvalid, "gives shares no host memory, which swap needs: have it started with --swap-memory"},
		"suspension where none is allowed": {0, suspending("1", gib), control.CodeInvalid, "which suspendAfter needs"},
		"more than all":                    {8 * gib, swap("1", 9*gib, 0), control.CodeInvalid, "there are 8Gi of host memory for all swapped and suspended shares, and the request needs 9Gi: ask for at most 8Gi"},
		"more than all on two GPUs":        {8 * gib, edit(swap("", 5*gib, 0), func(r *v1alpha1.ShareRequest) { r.Among, r.GPUs = nil, 2 }), control.CodeInvalid, "needs 5Gi on each of 2 GPUs: ask for at most 4Gi"},
		"more than is left":                {14 * gib, swap("1", 9*gib, 0), control.CodeRefused, "8Gi of the 14Gi of host memory for swapped and suspended shares is left, and this needs 9Gi: ask for at most 8Gi, end one of your shares (`divvy stop train_it`) or add --wait to queue"},
		"kept larger than memory":          {64 * gib, swap("1", 4*gib, 5*gib), control.CodeInvalid, "kept 5Gi of memory 4Gi leaves nothing to swap"},
		"kept smaller than a context":      {64 * gib, swap("1", 4*gib, gib/2), control.CodeInvalid, "kept 512Mi leaves nothing to the program"},
		"larger than a turn":               {64 * gib, swap("1", 30*gib, 0), control.CodeInvalid, "is more than GPU 1 can hold in a turn: ask for at most 24Gi, or add --overcommit"},
		"with another backend":             {64 * gib, edit(swap("1", 4*gib, 0), func(r *v1alpha1.ShareRequest) { r.Backend = v1alpha1.BackendTimeslice }), control.CodeInvalid, "need backend slice, not timeslice"},
		"with suspendAfter":                {64 * gib, edit(swap("1", 4*gib, 0), func(r *v1alpha1.ShareRequest) { r.SuspendAfter = v1alpha1.MinSuspendAfter }), control.CodeInvalid, "the driver cannot suspend a process with managed memory"},
		"on a MIG instance":                {64 * gib, edit(swap("1", 4*gib, 0), func(r *v1alpha1.ShareRequest) { r.Profile, r.Backend = "1g.10gb", v1alpha1.BackendSlice }), control.CodeInvalid, "the driver moves no memory of MIG instances"},
		"on nine GPUs":                     {64 * gib, edit(swap("1", gib, 0), func(r *v1alpha1.ShareRequest) { r.GPUs, r.Among = 9, nil }), control.CodeInvalid, "9 GPUs with swap: ask for at most 8"},
		"on a GPU that cannot":             {64 * gib, swap("0", 4*gib, 0), control.CodeInvalid, "too few GPUs can have swap shares: GPU 0: it is old: leave out --swap, or name other GPUs"},
		"where nothing can be suspended":   {64 * gib, suspending("1", gib), control.CodeInvalid, "no share of this machine can be suspended: it is another machine: leave out --suspend-after"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			settings := n.settings(n.backend)
			settings.SwapMemory = c.memory
			settings.Unswappable = func(gpu backend.GPU) (string, <-chan struct{}) {
				if gpu.Index == 0 && name == "on a GPU that cannot" {
					return "it is old", nil
				}
				return "", nil
			}
			settings.Unsuspendable = func() string { return "it is another machine" }
			r := n.startAs(settings)
			if c.code == control.CodeRefused {
				n.grant(r, n.asker(0), swap("1", 6*gib, 0))
			}
			if got, code := n.refusal(r, 0, c.ask); code != c.code || !strings.Contains(got, c.want) {
				t.Errorf("%q (%s), want %q (%s)", got, code, c.want, c.code)
			}
			explained, err := r.explain(t.Context(), n.asker(0).peer, control.ExplainParams{Request: c.ask.Request})
			said := ""
			if err != nil {
				said = err.Error()
			} else {
				for _, v := range explained.Backends {
					said += v.Reason + "\n"
				}
			}
			if want, _, _ := strings.Cut(c.want, ": ask for"); !strings.Contains(said, want) {
				t.Errorf("explained as %q, want %q", said, want)
			}
		})
	}
}

// A share that is larger than a turn gets as large a turn as there is room, with the right to that.
func TestSwapWithOvercommit(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	n.grant(r, n.asker(0), askOn("1", 10*gib))
	p := swap("1", 30*gib, 4*gib)
	p.Request.Overcommit = true
	s := n.grant(r, n.asker(0), p).Tenant.Shares[0]
	if s.Limit != 30*gib || *s.Swap != (control.Swap{Kept: 4 * gib, Room: 10 * gib}) {
		t.Errorf("%+v, %+v", s, s.Swap)
	}
	if g := n.list(r).GPUs[1]; g.Granted != 24*gib {
		t.Errorf("%+v", g)
	}
	// Another one shares the turn, and needs room for what it keeps alone.
	if got, code := n.refusal(r, 0, swap("1", 5*gib, gib)); code != control.CodeRefused || !strings.Contains(got, "GPU 1 has 0 of 24Gi not granted and the swap share needs 1Gi to keep") {
		t.Errorf("%s", got)
	}
}

// Who waits for host memory gets it in the order of the requests, and keeps nobody from a GPU meanwhile.
func TestWaitingForHostMemory(t *testing.T) {
	n := newNode(t)
	r := n.swapping(20 * gib)
	full := n.asker(0)
	n.grant(r, full, swap("0", 16*gib, 0))
	large := n.wait(r, n.asker(0), swap("0", 12*gib, 0))
	if want := "4Gi of the 20Gi of host memory for swapped and suspended shares is left, and this needs 12Gi"; large.first.Reason != want {
		t.Errorf("it waits because %q, want %q", large.first.Reason, want)
	}
	small := n.wait(r, n.asker(0), swap("0", 4*gib, 0))
	if want := "; requests that came before wait for 12Gi"; !strings.HasSuffix(small.first.Reason, want) {
		t.Errorf("it waits because %q, want %q", small.first.Reason, want)
	}
	n.grant(r, n.asker(0), askOn("0", 8*gib)) // which needs none
	if w := n.list(r).Waiting; len(w) != 2 || len(w[0].Keeps) != 0 {
		t.Errorf("%+v", w)
	}
	explained, err := r.explain(t.Context(), n.asker(0).peer, control.ExplainParams{Request: swap("0", 4*gib, 0).Request})
	if err != nil || !strings.Contains(explained.Backends[0].Reason, "requests that came before wait for 16Gi") {
		t.Errorf("explained as %+v, %v", explained, err)
	}
	full.leave()
	for _, w := range []*waiter{large, small} {
		if err := <-w.done; err != nil {
			t.Error(err)
		}
	}
	if l := n.list(r); l.SwapMemory.Granted != 16*gib {
		t.Errorf("%+v", l.SwapMemory)
	}
}

func TestLimitOfHostMemory(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.SwapMemory, c.Rules = 64*gib, n.rules("users: {ada: {swapMemory: 10Gi}}")
	r := n.startAs(c)
	if got, code := n.refusal(r, ada, swap("1", 11*gib, 0)); code != control.CodeInvalid || !strings.Contains(got, "lets you have at most 10Gi for swapped and suspended shares, and the request needs 11Gi: ask for at most 10Gi") {
		t.Errorf("%q (%s)", got, code)
	}
	n.grant(r, n.asker(ada), swap("1", 6*gib, 0))
	n.grant(r, n.asker(ada), askOn("1", 6*gib))
	if got, code := n.refusal(r, ada, swap("1", 5*gib, 0)); code != control.CodeRefused || !strings.Contains(got, "you have 6Gi in swapped and suspended shares, this needs 5Gi more, and the administrator lets you have at most 10Gi of these") {
		t.Errorf("%q (%s)", got, code)
	}
	n.grant(r, n.asker(bob), swap("0", 20*gib, 0))
}

// The next agent knows what each share keeps and has room for, also if the checkpoint is lost, and gives no more than is left.
func TestSwapOutlivesTheAgent(t *testing.T) {
	for name, lose := range map[string]func(n *node){
		"with the checkpoint": func(*node) {},
		"without it": func(n *node) {
			if err := os.Remove(filepath.Join(n.dir, "tenants.json")); err != nil {
				n.t.Fatal(err)
			}
		},
		"without records": func(n *node) {
			if err := os.Remove(filepath.Join(n.dir, "tenants.json")); err != nil {
				n.t.Fatal(err)
			}
			records, err := filepath.Glob(filepath.Join(n.backend.dir, "*", "record"))
			if err != nil || len(records) != 2 {
				n.t.Fatal(records, err)
			}
			for _, record := range records {
				if err := os.WriteFile(record, []byte("x"), 0o600); err != nil {
					n.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.swapping(64 * gib)
			for _, p := range []control.CreateParams{swap("1", 20*gib, 3*gib), swap("1", 6*gib, gib)} {
				n.enter(n.grant(r, n.asker(os.Getuid()), p).Tenant.Dir, 0, os.Getpid(), gib)
			}
			r.stopAgent()
			lose(n)
			r = n.swapping(24 * gib)
			l := n.list(r)
			if g := l.GPUs[1]; len(l.Tenants) != 2 || g.Granted != 21*gib || g.TurnRoom != 17*gib || *l.SwapMemory != (control.HostMemory{Allowed: 24 * gib, Granted: 26 * gib}) {
				t.Fatalf("%+v, %+v", g, l.SwapMemory)
			}
			if got, code := n.refusal(r, 0, swap("0", 2*gib, 0)); code != control.CodeRefused || !strings.Contains(got, "0 of the 24Gi of host memory") {
				t.Errorf("%q (%s)", got, code)
			}
			n.grant(r, n.asker(0), askOn("1", 3*gib))
		})
	}
}

// A claim's swap share is counted as any other.
func TestSwapOfATenancy(t *testing.T) {
	n := newNode(t)
	r := n.swapping(24 * gib)
	config := v1alpha1.ShareConfig{Swap: true, Kept: v1alpha1.Bytes(2 * gib)}
	wanted := Tenancy{Key: "a", Name: "ns/a", Shares: []TenancyShare{{UUID: otherID, Memory: 16 * gib, Config: config}}}
	if _, err := r.Prepare(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	if l := n.list(r); l.GPUs[1].Granted != 16*gib || l.GPUs[1].TurnRoom != 14*gib || l.SwapMemory.Granted != 16*gib {
		t.Errorf("%+v, %+v", l.GPUs[1], l.SwapMemory)
	}
	wanted.Key = "b"
	if _, err := r.Prepare(t.Context(), wanted); !alloc.Waits(err) || !strings.Contains(err.Error(), "8Gi of the 24Gi of host memory") {
		t.Errorf("a second one: %v", err)
	}
}

// What was written is read as it was.
func TestCheckpointOfSwap(t *testing.T) {
	golden := filepath.Join("testdata/checkpoint", "v5-swap.json")
	s := share{UUID: firstID, Limit: 10 * gib, Before: 20 * gib, BeforeKept: 2 * gib, Turn: 9 * gib, ShareConfig: v1alpha1.ShareConfig{Swap: true, Kept: v1alpha1.Bytes(gib)}}
	away := share{UUID: otherID, Limit: 4 * gib, ShareConfig: v1alpha1.ShareConfig{SuspendAfter: v1alpha1.MinSuspendAfter}}
	s.Default(0)
	away.Default(0)
	want := saved{Tenants: []record{
		{ID: "0a1b2c3d", Name: "train", UID: 7, User: "ada", Layer: backend.LayerEnv, Overcommit: true, Shares: []share{s}},
		{ID: "1a1b2c3d", Name: "notebook", UID: 7, User: "ada", Layer: backend.LayerEnv, Shares: []share{away}, Away: AwayOut},
	}}
	path := filepath.Join(t.TempDir(), "tenants.json")
	if err := newCheckpoint(path).Save(want); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(frozen, written) {
		t.Errorf("written is\n%s\nand the golden file has, %v,\n%s", written, err, frozen)
	}
	if got, err := newCheckpoint(golden).Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read is %+v, %v", got, err)
	}
}
