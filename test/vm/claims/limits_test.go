package claims

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// A card on whose adapter containers had limits stays with its driver, because the kernel may stop when that adapter goes. The refusal and
// doctor say what helps.
func TestCardThatHadLimits(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	guest.Adapter(t, "limited", card, "10.20.0.1")
	path := filepath.Join("/run/divvy", claims.FileName)
	t.Cleanup(func() { _ = os.Remove(path) }) // as when the host starts again
	at, err := pci.ParseAddress(string(card))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := claims.Open(claims.Config{Path: path})
	if err == nil {
		err = errors.Join(ledger.Reserve(claims.Reserved{Key: "x", Name: "team/x", Functions: []pci.Address{at}, Limited: []pci.Address{at}}), ledger.Unreserve("x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	before := drivers(card.Members())
	agent(t)
	t.Cleanup(func() { _, _ = divvy("vm", "release", "train") }) // where it is not refused
	_, err = settled("vm", "claim", "train", "--pci", string(card), "--form", "passthrough")
	if err == nil || !strings.Contains(err.Error(), "containers had limits on its RDMA adapter") || !strings.Contains(err.Error(), "restart the host") {
		t.Errorf("a claim: %v", err)
	}
	if after := drivers(card.Members()); after != before {
		t.Errorf("there is\n%swant\n%s", after, before)
	}
	if said, _ := divvy("doctor"); !strings.Contains(said, "containers had limits on limited") {
		t.Errorf("doctor says\n%s", said)
	}
}
