package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

var first = backend.GPU{UUID: firstID}

// placed is a tenancy with a MIG instance of its own.
func placed(key, profile string, start int) Tenancy {
	t := claimed(key, 0, 0)
	t.Shares[0].Config.Backend = v1alpha1.BackendMIG
	t.Shares[0].Instance = &TenancyInstance{Profile: profile, Start: start}
	return t
}

// parted is a tenancy with a part of a MIG instance.
func parted(key, profile string, start int, memory uint64) Tenancy {
	t := placed(key, profile, start)
	t.Shares[0].Config.Backend, t.Shares[0].Memory = v1alpha1.BackendSlice, memory
	return t
}

// The cluster chooses where instances are. The same key gets the same answer, and what the cluster gives up makes room at
// once.
func TestInstancesOfTenancies(t *testing.T) {
	q := newQuarry(t)
	q.mig.Foreign(t, firstID, "1g.10gb", 6)
	r := q.run("")
	dir := q.prepared(r, placed("a", "2g.20gb", 2))
	if again := q.prepared(r, placed("a", "2g.20gb", 2)); again != dir {
		t.Errorf("the second answer is %s, the first was %s", again, dir)
	}
	q.has("2g.20gb@2 share", "1g.10gb@6 foreign")
	if _, err := r.Prepare(t.Context(), placed("a", "2g.20gb", 4)); !errors.Is(err, ErrChanged) {
		t.Errorf("another place for the key: %v", err)
	}
	for name, c := range map[string]struct {
		wanted Tenancy
		want   string
	}{
		"overlapping":         {placed("b", "1g.10gb", 3), "has no room for a MIG instance 1g.10gb at memory slice 3"},
		"taken":               {placed("b", "2g.20gb", 2), "has shares of backend mig"},
		"no such place":       {placed("b", "3g.40gb", 1), "can have no MIG instance 3g.40gb at memory slice 1"},
		"no such profile":     {placed("b", "9g.90gb", 0), "has the MIG profile 9g.90gb"},
		"divided otherwise":   {parted("b", "2g.20gb", 2, gib), "has shares of backend mig"},
		"more than all of it": {parted("b", "1g.10gb", 0, 11*gib), "memory 11Gi is more than a MIG instance 1g.10gb has"},
	} {
		if _, err := r.Prepare(t.Context(), c.wanted); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	q.prepared(r, placed("c", "1g.10gb", 6)) // adopted
	q.prepared(r, parted("d", "1g.10gb", 0, 6*gib))
	q.prepared(r, parted("e", "1g.10gb", 0, 4*gib))
	if _, err := r.Prepare(t.Context(), parted("f", "1g.10gb", 0, gib)); err == nil || !strings.Contains(err.Error(), "not granted") {
		t.Errorf("a full instance: %v", err)
	}
	q.has("1g.10gb@0 share", "2g.20gb@2 share", "1g.10gb@6 foreign")
	for _, key := range []string{"a", "c", "d"} {
		if err := r.Release(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	q.has("1g.10gb@0 share", "1g.10gb@6 foreign")
	q.prepared(r, placed("b", "1g.10gb", 3))
	r.stopAgent()
	r = q.run("")
	if again := q.prepared(r, placed("b", "1g.10gb", 3)); again == "" || len(r.Tenancies()) != 2 {
		t.Errorf("after a restart: %q, %+v", again, r.Tenancies())
	}
	q.has("1g.10gb@0 share", "1g.10gb@3 share", "1g.10gb@6 foreign")
}

// What makes no sense is refused before anything is asked of the driver.
func TestTenanciesThatMakeNoSense(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	for want, change := range map[string]func(*Tenancy){
		"a process can use one instance only": func(t *Tenancy) { t.Shares = append(t.Shares, TenancyShare{UUID: otherID, Memory: gib}) },
		"without a MIG instance":              func(t *Tenancy) { t.Shares[0].Instance = nil },
		"a MIG instance of a whole GPU":       func(t *Tenancy) { t.Shares[0].Whole = true },
		"it has no effect":                    func(t *Tenancy) { t.Shares[0].Interval = "short" },
	} {
		wanted := placed("a", "1g.10gb", 0)
		change(&wanted)
		if _, err := r.Prepare(t.Context(), wanted); !errors.Is(err, ErrTenancy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	q.has()
}

// A tenancy whose instance cannot be made is forgotten, and the kubelet tries again.
func TestTenancyWithoutAnInstance(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	q.mig.SetFail(func(string) error { return errors.New("the driver failed") })
	if _, err := r.Prepare(t.Context(), placed("a", "1g.10gb", 0)); err == nil || !strings.Contains(err.Error(), "the driver failed") {
		t.Errorf("%v", err)
	}
	if n := len(r.Tenancies()); n != 0 {
		t.Errorf("%d tenancies", n)
	}
	q.mig.SetFail(nil)
	q.prepared(r, placed("a", "1g.10gb", 0))
}

func (q *quarry) turn(r *running, gpu string, on bool) error {
	_, err := r.migMode(q.t.Context(), &control.Peer{UID: os.Getuid()}, control.MIGModeParams{GPU: gpu, On: on})
	return err
}

// Who waits for the mode is told once what keeps it, and again when something else does. Who does not wait is told that it
// can be waited for.
func TestMIGModeWaits(t *testing.T) {
	q := newQuarry(t)
	q.mig.Turn(firstID, false)
	r := q.run("")
	asker := q.asker(os.Getuid())
	name := q.grant(r, asker, askOn("0", gib)).Tenant.Name
	q.mig.Use(firstID, "", "dcgm (pid 7, root)")
	told, answer := make(chan string, 64), make(chan error, 1)
	ctx := control.Telling(t.Context(), func(progress any) { told <- progress.(control.Awaited).Reason })
	go func() {
		_, err := r.migMode(ctx, &control.Peer{UID: os.Getuid()}, control.MIGModeParams{GPU: "0", On: true, Wait: true})
		answer <- err
	}()
	if got, want := <-told, "GPU 0 has shares: "+process.UserName(os.Getuid())+"/"+name; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	asker.end()
	if got := <-told; !strings.HasPrefix(got, "GPU 0: in use by dcgm (pid 7, root)") {
		t.Errorf("told %q", got)
	}
	q.mig.Use(firstID, "", "")
	if err := <-answer; err != nil || !r.inMIGMode(firstID) {
		t.Errorf("turned on: %v", err)
	}
	if len(told) != 0 {
		t.Errorf("told %q again", <-told)
	}
	q.mig.Use(firstID, "", "dcgm (pid 7, root)")
	if err := q.turn(r, "0", false); err == nil || !strings.HasSuffix(err.Error(), "dcgm (pid 7, root): end them first, or wait with --wait") {
		t.Errorf("without --wait: %v", err)
	}
}

// The mode changes on a GPU without shares, and without anybody else's instances.
func TestMIGModeIsTurned(t *testing.T) {
	q := newQuarry(t)
	q.mig.Turn(firstID, false)
	r := q.run("")
	asker := q.asker(os.Getuid())
	q.grant(r, asker, askOn("0", gib))
	if err := q.turn(r, "0", true); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "has shares") {
		t.Errorf("with a share: %v", err)
	}
	asker.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
	q.mig.Use(firstID, "", "dcgm (pid 7, root)")
	if err := q.turn(r, "0", true); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "dcgm (pid 7, root)") {
		t.Errorf("beside a monitor: %v", err)
	}
	q.mig.Use(firstID, "", "")
	if err := q.turn(r, "0", true); err != nil || !r.inMIGMode(firstID) {
		t.Fatalf("turned on: %v", err)
	}
	q.lays(r, map[string]int{"1g.10gb": 1})
	q.mig.SetFail(func(change string) error {
		if change == "mode" {
			return errors.New("the driver failed")
		}
		return nil
	})
	if err := q.turn(r, "0", false); control.CodeOf(err) != control.CodeRefused || q.counts()["1g.10gb layout"] != 1 {
		t.Errorf("a driver that fails: %v, and it has %v", err, q.counts())
	}
	q.mig.SetFail(nil)
	q.mig.Foreign(t, firstID, "1g.10gb", 5)
	if err := q.turn(r, "0", false); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "another tool's") || len(q.counts()) != 2 {
		t.Errorf("with another tool's instance: %v, and it has %v", err, q.counts())
	}
	d, _ := q.mig.Division(t.Context(), first)
	for _, p := range d.Parts {
		if p.Origin == backend.OriginForeign {
			q.mig.TakeAway(t, firstID, p.UUID)
		}
	}
	if err := q.turn(r, "0", false); err != nil || r.inMIGMode(firstID) {
		t.Errorf("turned off: %v", err)
	}
	q.grant(r, q.asker(os.Getuid()), askOn("0", gib))
	if _, err := r.migMode(t.Context(), &control.Peer{UID: bob}, control.MIGModeParams{GPU: "1", On: true}); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("another user: %v", err)
	}
}

// A layout keeps what shares and other tools have, is worked out before, and is taken back if it fails.
func TestLayout(t *testing.T) {
	q := newQuarry(t)
	q.mig.Foreign(t, firstID, "1g.10gb", 1)
	r := q.run("")
	holder := q.asker(os.Getuid())
	used := q.grant(r, holder, instanceOf("2g.20gb")).Tenant.Shares[0].Instance
	dry, err := r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: map[string]int{"1g.10gb": 3, "2g.20gb": 1}, Dry: true})
	if err != nil || len(dry.Add) != 2 || len(dry.Remove) != 0 || len(q.mig.Lists(firstID)) != 2 {
		t.Fatalf("dry: %+v, %v, and it has %q", dry, err, q.mig.Lists(firstID))
	}
	q.lays(r, map[string]int{"1g.10gb": 3, "2g.20gb": 1})
	want := map[string]int{"1g.10gb layout": 2, "1g.10gb foreign": 1, "2g.20gb layout": 1}
	same := func(what string) {
		t.Helper()
		for origin, n := range want {
			if q.counts()[origin] != n || len(q.counts()) != len(want) {
				t.Errorf("%s: the GPU has %v, want %v", what, q.counts(), want)
				return
			}
		}
	}
	same("applied")
	for text, layout := range map[string]map[string]int{
		"that have to stay":                     {"1g.10gb": 3},
		"it fits only if instances move":        {"1g.10gb": 1, "2g.20gb": 1, "4g.40gb": 1},
		"so many instances do not fit together": {"1g.10gb": 9, "2g.20gb": 1},
		"it has no profile 9g.90gb":             {"9g.90gb": 1},
	} {
		_, err := r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: layout})
		if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", layout, err, text)
		}
		same(text)
	}
	left := 2
	q.mig.SetFail(func(change string) error {
		if change == "create" {
			if left--; left < 0 && left > -2 {
				return errors.New("the driver failed")
			}
		}
		return nil
	})
	_, err = r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: map[string]int{"1g.10gb": 5, "2g.20gb": 1}})
	if err == nil {
		_, err = r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: map[string]int{"1g.10gb": 3, "2g.20gb": 1}})
	}
	q.mig.SetFail(nil)
	if err != nil {
		same("a driver that fails")
	}
	holder.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
	d := r.divisions.get(firstID)
	if p, ok := d.part(used.UUID); !ok || p.Origin != backend.OriginLayout {
		t.Errorf("the instance of the share is %+v after it: %q", p, q.mig.Lists(firstID))
	}
	if _, err := r.layout(t.Context(), &control.Peer{UID: bob}, control.LayoutParams{GPU: "0", On: true}); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("another user: %v", err)
	}
}
