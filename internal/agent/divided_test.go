package agent

import (
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Instances are told with whose they are, and the places in the order in which they would be taken.
func TestWhatAClusterIsToldOfInstances(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	asker := q.asker(os.Getuid())
	q.grant(r, asker, instanceOf("3g.40gb"))
	mine := q.mig.Lists(firstID)
	if len(mine) != 1 {
		t.Fatal(mine)
	}
	first := func(profile string) int {
		d, _, _ := r.Division(firstID)
		for _, c := range r.Preferred([]string{otherID, firstID}) {
			if c.GPU != 1 {
				t.Fatalf("%+v is of a GPU that is not in MIG mode", c)
			}
			if d.Profiles[c.Profile].Name == profile {
				return c.Start
			}
		}
		return -1
	}
	taken := r.InstanceUses()[0].Start
	start := first("3g.40gb")
	if start == taken || start < 0 {
		t.Errorf("the next 3g would begin at %d beside one at %d", start, taken)
	}
	for claim := range map[string]bool{"": true, "gpu": true} {
		share := TenancyShare{UUID: firstID, Instance: &TenancyInstance{Profile: "3g.40gb", Start: start}, Config: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}}
		if _, err := r.Prepare(t.Context(), Tenancy{Key: "a", Name: "team/a", Claim: claim, Shares: []TenancyShare{share}}); err != nil {
			t.Fatal(err)
		}
		want := []InstanceUse{{GPU: firstID, Profile: "3g.40gb", Start: taken}, {GPU: firstID, Profile: "3g.40gb", Start: start, Claim: claim != ""}}
		if got := r.InstanceUses(); !slices.Equal(got, want) {
			t.Fatalf("used are %+v, want %+v", got, want)
		}
		if err := r.Release(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	d, _, _ := r.Division(firstID)
	q.mig.TakeAway(t, firstID, d.Parts[0].UUID)
	if _, err := r.forms(t.Context(), root, struct{}{}); err != nil { // it reads how the GPUs are divided
		t.Fatal(err)
	}
	if !r.InstanceUses()[0].Gone {
		t.Error("the instance is gone, and nobody is told")
	}
}
