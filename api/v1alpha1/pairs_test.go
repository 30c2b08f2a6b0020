package v1alpha1

import (
	"errors"
	"strings"
	"testing"
)

func TestPairReach(t *testing.T) {
	for text, want := range map[string]PairReach{"": ReachStrict, "strict": ReachStrict, "bridge": ReachBridge, "socket": ReachSocket} {
		if got, err := ParsePairReach(text); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"switch", "Strict", "bridge,socket", " strict", "node"} {
		_, err := ParsePairReach(text)
		if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "use strict, bridge or socket") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A claim has room for the constraints of so many pairs, and for the one that keeps shares on different GPUs.
func TestMostPairs(t *testing.T) {
	for _, reach := range PairReaches() {
		if most := MostPairs(reach); most < 8 || most*reach.Levels()+1 > 32 || 2*most > 32 {
			t.Errorf("%s: %d pairs", reach, most)
		}
	}
}
