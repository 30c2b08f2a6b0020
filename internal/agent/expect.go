package agent

import (
	"maps"
	"strings"
)

// Expected is a tenancy that the cluster has decided on and not asked for yet.
type Expected struct {
	// Claim is what the keys of its tenancies begin with.
	Claim string
	// Name is for people: namespace/claim.
	Name string
}

// Expect keeps GPUs, by UUID, for tenancies that are to have them as a whole, instead of
// those of the call before. Each is kept until it is prepared.
func (a *Agent) Expect(expected map[string]Expected) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if maps.Equal(a.expected, expected) {
		return
	}
	a.expected = maps.Clone(expected)
	a.tell()
}

// keptForClaim says for which claim a GPU is kept, "" if it is for none. Agent.mu is held.
func (a *Agent) keptForClaim(uuid string) string {
	if e, ok := a.expected[uuid]; ok {
		return "it is kept for claim " + e.Name
	}
	return ""
}

// expectedBesides are the GPUs that are kept for others than the tenancy of a key. Agent.mu
// is held.
func (a *Agent) expectedBesides(key string) map[string]Expected {
	claim, _, _ := strings.Cut(key, "/")
	others := maps.Clone(a.expected)
	maps.DeleteFunc(others, func(_ string, e Expected) bool { return e.Claim == claim })
	return others
}
