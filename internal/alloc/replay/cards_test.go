package replay

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

const (
	cardHeader = "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib,gpu_cards\n"
	pairHeader = "name,cpu_milli,memory_mib,gpus,gpu_memory,pairs,pairs_fallback\n"
)

func TestCardsAndPairsAreRead(t *testing.T) {
	nodes, err := ReadNodes("nodes", strings.NewReader(cardHeader+`n,64000,65536,8,A800,81920,"0,1:2; 2,3:1x4 | 4,5:0; 6:1"`+"\nbare,64000,65536,8,A800,81920,\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := nodes[0]
	if len(n.NICs) != 4 || len(nodes[1].NICs) != 0 || n.NICs[0].Slots != cardSlots || n.NICs[2].Slots != 4 {
		t.Fatalf("cards are %+v and %+v", n.NICs, nodes[1].NICs)
	}
	for card, want := range map[int]string{0: "55221111", 2: "22551111", 3: "11112251"} {
		got := ""
		for _, near := range n.NICs[card].Near {
			got += string(rune('0' + near))
		}
		if got != want {
			t.Errorf("card %d has relations %s, want %s", card, got, want)
		}
	}
	pods, err := ReadPods("pods", strings.NewReader(pairHeader+"a,0,0,0,,2,\nb,0,0,0,8Gi,3,socket\nc,0,0,1,,,\n"), nodes)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := pods[0].Request, pods[1].Request, pods[2].Request
	if a.Count != 2 || !a.Whole || a.Pair != alloc.RelationSwitches || b.Count != 3 || b.Whole || b.Pair != alloc.RelationNUMA || c.Pair != alloc.RelationNone || pods[0].Milli != 2000 {
		t.Errorf("read are %+v, %+v, %+v", a, b, c)
	}
}

// A pair goes to a node with cards alone, and no more of them than its cards have slots.
func TestPairsAreReplayed(t *testing.T) {
	nodes, err := ReadNodes("nodes", strings.NewReader(cardHeader+`n,64000,65536,8,A800,81920,"0,1:1x1; 2,3:1x1; 4,5:1x1; 6,7:1x1"`+"\nbare,64000,65536,8,A800,81920,\n"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := ReadPods("pods", strings.NewReader(pairHeader+"a,0,0,0,,1,\nb,0,0,0,,3,\nc,0,0,0,,1,\n"), nodes)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := alloc.NewInventory(nodes, policy)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		place, err := alloc.Search(inventory, pods[i].Request)
		if (err == nil) != want || want && place.Name != "n" {
			t.Fatalf("pod %s: %+v, %v", pods[i].Name, place, err)
		}
		if want {
			if err := inventory.Reserve(place); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestFaultyCardsAndPairs(t *testing.T) {
	for cards, want := range map[string]string{
		"0,1":       "has no number of cards",
		"0,8:1":     "is not one of GPUs 0 to 7",
		"0,0:1":     "is there twice",
		"0:1; 0:1":  "another switch has",
		"0:17":      "0 to 16 cards",
		"0:1x0":     "1 to 1024 pods share a card",
		"0:1x99999": "1 to 1024 pods share a card",
		"0:-1":      "0 to 16 cards",
		";":         "no number of cards",
		"x:1":       "is not one of GPUs",
		"0:1|":      "no number of cards",
	} {
		_, err := ReadNodes("nodes", strings.NewReader(cardHeader+"n,64000,65536,8,A800,81920,\""+cards+"\"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gpu_cards") {
			t.Errorf("%q: %v", cards, err)
		}
	}
	nodes, err := ReadNodes("nodes", strings.NewReader(cardHeader+"n,64000,65536,8,A800,81920,0:1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{
		"p,0,0,2,,2,":       "stands beside 2 gpus",
		"p,0,0,0,,0,":       "leave it empty",
		"p,0,0,0,,17,":      "17",
		"p,0,0,0,,1,switch": "use strict, bridge or socket",
		"p,0,0,1,,,bridge":  "the pod asks for no pairs",
		"p,0,0,0,,-1,":      "-1",
	} {
		if _, err := ReadPods("pods", strings.NewReader(pairHeader+row+"\n"), nodes); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pairs") {
			t.Errorf("%s: %v", row, err)
		}
	}
}
