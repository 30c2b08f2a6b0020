package agent

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Two users may be known by one name: the account of one had it before.
func TestSharesOfTwoUsersWithOneName(t *testing.T) {
	a := &Agent{tenants: map[string]*tenant{}}
	for id, uid := range map[string]int{"aaaa0001": 4711, "aaaa0002": 4712} {
		a.tenants[id] = &tenant{record: record{ID: id, Name: "train", User: "ada", UID: uid}}
	}
	for id, t1 := range a.tenants {
		found, err := a.find(&control.Peer{UID: t1.UID}, "ada/train")
		if err != nil || found.ID != id {
			t.Errorf("user %d: %v, %v", t1.UID, found, err)
		}
	}
	if _, err := a.find(&control.Peer{}, "ada/train"); err == nil || !strings.Contains(err.Error(), "aaaa0001") || !strings.Contains(err.Error(), "aaaa0002") {
		t.Errorf("root is not told which there are: %v", err)
	}
}

func TestUsersAreCalledWhatTheyAreNow(t *testing.T) {
	for uid, want := range map[int]string{0: "root", 1<<30 + 7: "before"} {
		r := record{User: "before", UID: uid}
		if r.nameUser(); r.User != want {
			t.Errorf("user %d is called %q", uid, r.User)
		}
	}
}
