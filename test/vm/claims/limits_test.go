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
	adapter(t, "limited", card)
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

// Where the ledger cannot be read that would tell of limits, no card with an RDMA adapter leaves its driver.
func TestCardsWithoutALedger(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	adapter(t, "unknown", card)
	path := filepath.Join("/run/divvy", claims.FileName)
	t.Cleanup(func() { // as when the host starts again
		for _, file := range glob(t, path+"*") {
			_ = os.Remove(file)
		}
	})
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("nonsense"), 0o600)); err != nil {
		t.Fatal(err)
	}
	before := drivers(card.Members())
	agent(t)
	t.Cleanup(func() { _, _ = divvy("vm", "release", "train") }) // where it is not refused
	_, err := settled("vm", "claim", "train", "--pci", string(card), "--form", "passthrough")
	if err == nil || !strings.Contains(err.Error(), "the record of that was lost") {
		t.Errorf("a claim: %v", err)
	}
	if after := drivers(card.Members()); after != before {
		t.Errorf("there is\n%swant\n%s", after, before)
	}
}

// adapter makes a soft-RoCE adapter of a card by which the host is on no network.
func adapter(t *testing.T, name string, card guest.Function) {
	t.Helper()
	guest.Run(t, "rdma", "link", "add", name, "type", "rxe", "netdev", card.Netdev(t))
	t.Cleanup(func() { guest.Run(t, "rdma", "link", "delete", name) })
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
