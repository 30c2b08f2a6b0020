package claims

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// enabled is what `divvy vm functions -o json` prints, as far as a virtual machine needs it.
type enabled struct {
	Count, Total int
	Virtual      []struct{ Device, Driver string }
}

// functions is how many virtual functions a card has, and whether drivers of the host take them.
func functions(card guest.Function) string {
	return card.Read("sriov_numvfs") + " of drivers " + card.Read("sriov_drivers_autoprobe")
}

// Functions of a card are enabled from none, one goes to a virtual machine, and they go away again over the end of an agent that was
// not asked to end; those of somebody else stay.
func TestFunctions(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	if got := functions(card); got != "0 of drivers 1" {
		t.Fatalf("there are functions %s", got)
	}
	t.Cleanup(func() {
		_, _ = card.Write("sriov_numvfs", "0"), card.Write("sriov_drivers_autoprobe", "1") // where the test failed before
	})
	first := agent(t)
	refused := func(want string, arguments ...string) {
		t.Helper()
		if out, err := settled(append([]string{"vm", "functions", string(card)}, arguments...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("functions %v: %v %s, want %q", arguments, err, out, want)
		}
	}
	refused("it can have 1 to", "--count", "999")
	out, err := settled("vm", "functions", string(card), "--count", "2", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var e enabled
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Count != 2 || len(e.Virtual) != 2 || e.Virtual[0].Driver != "" {
		t.Fatalf("%v in %s", err, out)
	}
	if got := functions(card); got != "2 of drivers 0" {
		t.Errorf("there are functions %s", got)
	}
	refused("their number changes only from 0", "--count", "1")
	one := guest.Function(e.Virtual[0].Device)
	if _, err := settled("vm", "claim", "part", "--pci", string(one), "--form", "vf"); err != nil {
		t.Fatal(err)
	}
	refused("claim part", "--count", "0")

	killed(t, first)
	agent(t)
	if list, err := divvy("vm", "ls"); err != nil || !slices.Contains(strings.Fields(list), string(card)) || !strings.Contains(list, "part") {
		t.Errorf("after the agent started again the list is: %v\n%s", err, list)
	}
	refused("claim part", "--count", "0")
	if _, err := settled("vm", "release", "part"); err != nil {
		t.Fatal(err)
	}
	if got := one.Driver(); got != "" {
		t.Errorf("after the release %s is with %s", one, got)
	}
	if _, err := settled("vm", "functions", string(card), "--count", "0"); err != nil {
		t.Fatal(err)
	}
	if got := functions(card); got != "0 of drivers 1" {
		t.Errorf("afterwards there are functions %s", got)
	}
	if err := card.Write("sriov_drivers_autoprobe", "0"); err != nil { // a driver of the guest would only take time
		t.Fatal(err)
	}
	if err := card.Write("sriov_numvfs", "1"); err != nil {
		t.Fatal(err)
	}
	refused("it was not Divvy that enabled its", "--count", "0")
	refused("it was not Divvy that enabled them", "--count", "2")
	if got := functions(card); got != "1 of drivers 0" {
		t.Errorf("of somebody else there are functions %s", got)
	}
}

// An agent enables what its configuration names when it starts, and leaves to others what they enabled.
func TestFunctionsOfTheConfiguration(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	t.Cleanup(func() {
		_, _ = card.Write("sriov_numvfs", "0"), card.Write("sriov_drivers_autoprobe", "1") // where the test failed before
	})
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := fmt.Sprintf("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nbackends: {vf: {gpus: [%q], functions: 2}}\n", string(card))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent(t, "--config", file)
	for { // until it is listed; the guest ends a test that takes too long
		list, err := divvy("vm", "ls")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(list, "FUNCTIONS OF") && strings.Contains(list, "held") {
			break
		}
	}
	if got := functions(card); got != "2 of drivers 0" {
		t.Errorf("there are functions %s", got)
	}
	if _, err := settled("vm", "functions", string(card), "--count", "0"); err != nil {
		t.Fatal(err)
	}
	if got := functions(card); got != "0 of drivers 1" {
		t.Errorf("afterwards there are functions %s", got)
	}
}
