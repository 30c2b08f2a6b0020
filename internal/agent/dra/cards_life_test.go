package dra

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What one agent attached the next one knows: it writes a lost specification again, removes one that is nobody's, follows the
// numbers of nodes, and lets no container start with a card that is gone.
func TestNextAgentKnowsCards(t *testing.T) {
	claim, pod := pairs()
	m, s := newCardMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	before := m.cardSpec(uidA)
	r.stop()
	path := filepath.Join(m.cdiDir, "nic.divvy.dev-"+string(uidA)+".json")
	foreign := filepath.Join(m.cdiDir, "nic.divvy.dev-"+string(uidB)+".json")
	if err := errors.Join(os.Remove(path), os.WriteFile(foreign, []byte(before), 0o600)); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	c := newReconciler(r.driver)
	c.cardSpecifications(t.Context())
	if after := m.cardSpec(uidA); after != before {
		t.Errorf("written again it is\n%s", after)
	}
	if m.cardSpec(uidB) != "" {
		t.Error("a specification without a claim is left")
	}
	s.renumber(map[string]uint32{"nic-c0-shared": 194, "nic-v0-vf": 192})
	c.cardSpecifications(t.Context())
	if after := m.cardSpec(uidA); strings.Index(after, "uverbs2") > strings.Index(after, "uverbs0") {
		t.Errorf("with other numbers it is\n%s", after)
	}
	s.renumber(map[string]uint32{"nic-c0-shared": 192})
	c.cardSpecifications(t.Context())
	if after := m.cardSpec(uidA); after != "" {
		t.Errorf("with a card that is gone it is\n%s", after)
	}
	s.renumber(newShelf().minors)
	c.cardSpecifications(t.Context())
	if after := m.cardSpec(uidA); after != before {
		t.Errorf("with the card back it is\n%s", after)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// An agent that dies after any step loses nothing and leaves nothing.
func TestCrashOverCards(t *testing.T) {
	for _, step := range []string{"cards-reserved", "cards-recorded", "cards-spec", "prepare-made", "prepare-spec", "release-done", "cards-forgotten"} {
		claim, pod := pairs()
		m, _ := newCardMachine(t, claim, pod)
		if !m.crashing(step, 1, func(r *running) {
			m.prepare(r, claim)
			_ = m.unprepare(r, claim)
		}) {
			t.Fatalf("there is no step %s", step)
		}
		r := m.start()
		c := newReconciler(r.driver)
		c.specifications(t.Context())
		c.cardSpecifications(t.Context())
		if step != "release-done" && step != "cards-forgotten" {
			m.mustPrepare(r, claim)
			if m.cardSpec(uidA) == "" {
				t.Errorf("%s: no specification", step)
			}
		}
		if err := m.unprepare(r, claim); err != nil {
			t.Error(err)
		}
		m.mustBeEmpty(r)
	}
}

// The cards of a claim that is gone and that the kubelet forgot are taken back.
func TestCardsOfClaimsThatAreGone(t *testing.T) {
	claim, pod := one("nic-v1-vf", "")
	m, _ := newCardMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	c := newReconciler(r.driver)
	if got := c.prepared()[uidB]; got.Name != "team/b" || got.Claim != "b" {
		t.Errorf("prepared is %+v", got)
	}
	c.abandon(t.Context(), uidB, c.prepared()[uidB])
	if len(c.prepared()) != 0 || m.cardSpec(uidB) != "" {
		t.Errorf("left are %v", c.prepared())
	}
}
