package cni

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// definition is the configuration of a network that the page for users shows.
func definition(t *testing.T, name string) map[string]any {
	t.Helper()
	page, err := os.ReadFile(installtest.Root(t) + "/docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)kind: NetworkAttachmentDefinition\n +metadata:[^{]*?(?:\{name: |name: )` + name + `[}\n].*?config: \|\n(.*?)\n\n`).FindSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no network %s", name)
	}
	var plugin map[string]any
	if err := json.Unmarshal(found[1], &plugin); err != nil {
		t.Fatalf("the configuration of %s: %v", name, err)
	}
	return plugin
}

// configured is a network of the page with what a node has beside it: a file of whereabouts' own, which tells where the API is. The
// elections that whereabouts holds for each address may take as long as this machine needs.
func configured(t *testing.T, name, kubeconfig string) map[string]any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "whereabouts.conf")
	text, err := json.Marshal(map[string]any{
		"kubernetes":            map[string]any{"kubeconfig": kubeconfig},
		"leader_lease_duration": 60000, "leader_renew_deadline": 40000, "leader_retry_period": 100,
	})
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	plugin := definition(t, name)
	plugin["ipam"].(map[string]any)["configuration_path"] = file
	return plugin
}

// whereabouts gives addresses to both networks of the page, from one range: one at a time though all ask at once, none twice, and
// again once it is free.
func TestWhereabouts(t *testing.T) {
	guest.Require(t)
	api, kubeconfig := newAPI(t)
	card := guest.Function(machine.RootedCard)
	guest.Adapter(t, "shared", machine.RootedCard, "192.168.10.250")
	shared := configured(t, "rail-0", kubeconfig)
	shared["master"] = card.Netdev(t)

	names := []string{"one", "two", "three"}
	joined := make(chan joining, len(names))
	for _, name := range names {
		guest.Namespace(t, name)
		p := pod(t, name, shared)
		go func() { joined <- p.join() }()
	}
	all := map[string]string{}
	ends := map[string]guest.End{}
	pods := map[string]*attached{}
	for range names {
		j := <-joined
		t.Cleanup(j.pod.leave)
		if j.err != nil {
			t.Fatalf("attach %s: %v", j.pod.name, j.err)
		}
		all[j.address], pods[j.pod.name] = j.pod.name, j.pod
		ends[j.pod.name] = guest.End{Namespace: j.pod.name, Adapter: "shared", Address: j.address}
	}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"192.168.10.1", "192.168.10.2", "192.168.10.3"}) {
		t.Fatalf("they get %v", got)
	}
	api.keeps(t, all)
	guest.Exchange(t, ends["one"], ends["two"])

	// A function that the runtime names, of the other network and the same range.
	card = machine.SwitchedCard
	guest.Run(t, "ip", "link", "set", card.Netdev(t), "up")
	function := card.Enable(t, 1)[0]
	function.Bind(t, "igbvf")
	moved := configured(t, "rail-0-vf", kubeconfig)
	moved["pciBusID"] = string(function)
	guest.Namespace(t, "four")
	four := pod(t, "four", moved)
	t.Cleanup(four.leave)
	j := four.join()
	if j.err != nil || j.address != "192.168.10.4" {
		t.Fatalf("the function gets %s, %v", j.address, j.err)
	}
	if shown := guest.Run(t, "ip", "-n", "four", "address", "show", "dev", "net1"); !strings.Contains(shown, "inet 192.168.10.4/24") {
		t.Errorf("the namespace has\n%s", shown)
	}

	// What is free is given again, and at the end nobody has any.
	free := ends["two"].Address
	pods["two"].leave()
	delete(all, free)
	guest.Namespace(t, "five")
	five := pod(t, "five", shared)
	t.Cleanup(five.leave)
	if j = five.join(); j.err != nil || j.address != free {
		t.Fatalf("five gets %s, %v; want %s", j.address, j.err, free)
	}
	all[free], all["192.168.10.4"] = "five", "four"
	api.keeps(t, all)
	for _, p := range append(slices.Collect(maps.Values(pods)), four, five) {
		p.leave()
	}
	api.keeps(t, nil)
}

// Where a range has no address left, a namespace is not attached, and keeps none of the others' from them.
func TestWhereaboutsIsFull(t *testing.T) {
	guest.Require(t)
	api, kubeconfig := newAPI(t)
	shared := configured(t, "rail-0", kubeconfig)
	card := guest.Function(machine.RootedCard).Netdev(t)
	guest.Run(t, "ip", "link", "set", card, "up")
	shared["master"] = card
	ipam := shared["ipam"].(map[string]any)
	ipam["range"], ipam["exclude"] = "192.168.10.0/29", []string{"192.168.10.2/31", "192.168.10.4/30"}
	for _, name := range []string{"one", "two"} {
		guest.Namespace(t, name)
	}
	one := pod(t, "one", shared)
	t.Cleanup(one.leave)
	if j := one.join(); j.err != nil || j.address != "192.168.10.1" {
		t.Fatalf("one gets %s, %v", j.address, j.err)
	}
	two := pod(t, "two", shared)
	t.Cleanup(two.leave)
	if j := two.join(); j.err == nil || !strings.Contains(j.err.Error(), "Could not allocate IP in range") {
		t.Errorf("two gets %s, %v", j.address, j.err)
	}
	two.leave()
	if shown := guest.Run(t, "ip", "-n", "two", "link", "show"); strings.Contains(shown, "net1") {
		t.Errorf("the namespace without an address has\n%s", shown)
	}
	api.keeps(t, map[string]string{"192.168.10.1": "one"})
	one.leave()
	if j := two.join(); j.err != nil || j.address != "192.168.10.1" {
		t.Errorf("two gets %s, %v", j.address, j.err)
	}
	two.leave()
	api.keeps(t, nil)
}
