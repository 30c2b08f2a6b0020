package dra

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// functions gives virtual machines what they ask for, and remembers who has something over the end of an agent.
type functions struct {
	mu  sync.Mutex
	has map[string]bool
}

func (f *functions) Take(_ context.Context, w claims.Want, admit func([]pci.Address) error) (claims.Given, error) {
	if err := admit([]pci.Address{w.Device}); err != nil {
		return claims.Given{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.has[w.Name] = true
	return claims.Given{Members: []pci.Address{w.Device}}, nil
}

func (f *functions) Release(_ context.Context, owner string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.has, owner)
	return nil, nil
}

func (f *functions) Standing(owner string) claims.Standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return claims.Standing{There: f.has[owner]}
}

// ledger is the node's ledger of virtual machines' devices, opened as an agent does that starts.
func (m *machine) ledger() *claims.Ledger {
	m.t.Helper()
	l, err := claims.Open(claims.Config{
		Path: filepath.Join(m.dir, claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Makers: map[v1alpha1.Backend]claims.Maker{v1alpha1.BackendVF: m.gives, v1alpha1.BackendPassthrough: m.gives},
	})
	if err == nil {
		err = l.Recover(m.t.Context())
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// claimed claims a function for a virtual machine.
func (m *machine) claimed(name string, at pci.Address) error {
	_, err := m.reserver.(*claims.Ledger).Take(m.t.Context(), claims.Want{Name: name, Form: v1alpha1.BackendVF, Device: at}, nil)
	return err
}

// A function is a container's or a virtual machine's, whoever asks first, also after the agent was started again, and never both.
func TestCardOrVirtualMachine(t *testing.T) {
	claim, pod := one("nic-v0-vf", "")
	m, _ := newCardMachine(t, claim, pod)
	m.gives = &functions{has: map[string]bool{}}
	r := m.start()
	m.mustPrepare(r, claim)
	own, card := functionOf["nic-v0-vf"][0], functionOf["nic-v0-vf"][1]
	refused := func(when string) {
		t.Helper()
		for _, at := range []pci.Address{own, card} {
			if err := m.claimed("vm", at); !errors.Is(err, claims.ErrTaken) || !strings.Contains(err.Error(), "claim team/b") {
				t.Errorf("%s a virtual machine gets %s: %v", when, at, err)
			}
		}
	}
	refused("while a container has it")
	if err := m.claimed("other", functionOf["nic-v1-vf"][0]); err != nil {
		t.Errorf("another function of the card: %v", err)
	}
	r.stop()
	r = m.start()
	refused("after a restart")
	newReconciler(r.driver).cardSpecifications(t.Context())
	refused("after the first look")
	if err := m.unprepare(r, claim); err != nil {
		t.Fatal(err)
	}
	if err := m.claimed("vm", own); err != nil {
		t.Errorf("of a container that has ended: %v", err)
	}
	r.stop()
	r = m.start()
	if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), "claim vm has it for a virtual machine") {
		t.Errorf("a container gets what a virtual machine has: %v", err)
	}
	if m.cardSpec(uidB) != "" || len(r.attached.list()) != 0 {
		t.Errorf("it has left %v and %s", r.attached.list(), m.cardSpec(uidB))
	}
}

// A card on which a container had limits is no virtual machine's after it, and a function that a container had alone is.
func TestCardThatHadLimits(t *testing.T) {
	for device, want := range map[string]error{"nic-c0-shared": claims.ErrLimited, "nic-v0-vf": nil} {
		claim, pod := one(device, "2")
		if want == nil {
			claim, pod = one(device, "")
		}
		m, _ := newCardMachine(t, claim, pod)
		m.gives = &functions{has: map[string]bool{}}
		r := m.start()
		m.mustPrepare(r, claim)
		if err := m.unprepare(r, claim); err != nil {
			t.Fatal(err)
		}
		if err := m.claimed("vm", functionOf[device][0]); !errors.Is(err, want) {
			t.Errorf("%s after a container: %v, want %v", device, err, want)
		}
	}
}

// Of two that ask at the same time one gets the function.
func TestCardAndVirtualMachineAtOnce(t *testing.T) {
	claim, pod := one("nic-v0-vf", "")
	m, _ := newCardMachine(t, claim, pod)
	m.gives = &functions{has: map[string]bool{}}
	r := m.start()
	for range 20 {
		var asked sync.WaitGroup
		var taken, prepared error
		asked.Go(func() { taken = m.claimed("vm", functionOf["nic-v0-vf"][0]) })
		asked.Go(func() { prepared = m.prepare(r, claim).Err })
		asked.Wait()
		if (taken == nil) == (prepared == nil) {
			t.Fatalf("the virtual machine: %v, the container: %v", taken, prepared)
		}
		if err := m.unprepare(r, claim); err != nil {
			t.Fatal(err)
		}
		if err := m.reserver.(*claims.Ledger).Release(t.Context(), "vm"); taken == nil && err != nil {
			t.Fatal(err)
		}
	}
}

// What an agent reserved that died before it wrote down for whom is given back once no pod can have it, and a record without reserved functions, as of an agent of
// an earlier version, gets one unless a virtual machine was faster. Then no container starts with the card.
func TestReservedFunctionsFollowTheRecords(t *testing.T) {
	claim, pod := one("nic-v0-vf", "")
	m, _ := newCardMachine(t, claim, pod)
	m.gives = &functions{has: map[string]bool{}}
	if !m.crashing("cards-reserved", 1, func(r *running) { m.prepare(r, claim) }) {
		t.Fatal("there is no such step")
	}
	r := m.start()
	own := functionOf["nic-v0-vf"][0]
	kept := func(when string) {
		t.Helper()
		newReconciler(r.driver).cardSpecifications(t.Context())
		if err := m.claimed("vm", own); !errors.Is(err, claims.ErrTaken) {
			t.Errorf("while %s: %v", when, err)
		}
	}
	kept("it is not known which pods live")
	watch := m.watched(r)
	kept("a pod of the claim lives, which may have it where the record was lost")
	m.removePod(watch, pod)
	newReconciler(r.driver).cardSpecifications(t.Context())
	if err := m.claimed("vm", own); err != nil {
		t.Errorf("what is reserved for nobody: %v", err)
	}
	ledger := m.reserver.(*claims.Ledger)
	if err := ledger.Release(t.Context(), "vm"); err != nil {
		t.Fatal(err)
	}
	m.mustPrepare(r, claim)
	if err := ledger.Unreserve(string(uidB)); err != nil {
		t.Fatal(err)
	}
	newReconciler(r.driver).cardSpecifications(t.Context())
	if err := m.claimed("vm", own); !errors.Is(err, claims.ErrTaken) {
		t.Errorf("what a record has: %v", err)
	}
	if err := ledger.Unreserve(string(uidB)); err != nil {
		t.Fatal(err)
	}
	if err := m.claimed("vm", own); err != nil {
		t.Fatal(err)
	}
	newReconciler(r.driver).cardSpecifications(t.Context())
	if m.cardSpec(uidB) != "" {
		t.Error("a container can start with a virtual machine's function")
	}
}
