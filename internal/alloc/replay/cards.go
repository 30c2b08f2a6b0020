package replay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const (
	// cardSlots is how many pods share a card of which a file says nothing else, as agents publish them.
	cardSlots = 64
	// mostCards bounds the cards of a switch, and mostCardSlots what one has room for.
	mostCards, mostCardSlots = 16, 1024
)

// readPairs reads how many pairs of GPU and card a pod asks for, and how far the cards may be.
func readPairs(t *table, r *alloc.Request) error {
	word := t.text("pairs_fallback")
	if t.text("pairs") == "" {
		if word != "" {
			return t.fault("pairs_fallback", errors.New("is set, but the pod asks for no pairs"))
		}
		return nil
	}
	pairs, err := t.number("pairs", alloc.MaxGPUs)
	if err != nil {
		return err
	}
	reach, err := v1alpha1.ParsePairReach(word)
	switch {
	case err != nil:
		return t.fault("pairs_fallback", err)
	case pairs == 0:
		return t.fault("pairs", errors.New("0: leave it empty, or give a number above 0"))
	case r.Count > 0:
		return t.fault("pairs", fmt.Errorf("stands beside %d gpus: a pair has a GPU", r.Count))
	case t.text("gpu_profile") != "":
		return t.fault("pairs", errors.New("stands beside gpu_profile: a MIG instance is none of a pair"))
	}
	r.Count, r.Pair = int(pairs), alloc.RelationOf(reach)
	return nil
}

// readCards gives a node the cards of its PCIe switches. They are written as the switches' GPUs with a number of cards, such
// as "0,1:2; 2,3:2 | 4,5:2x16": ';' stands between switches, '|' between sockets, and x16 says that 16 pods share a card.
func readCards(t *table, n *alloc.Node) error {
	text := t.text("gpu_cards")
	if text == "" {
		return nil
	}
	type group struct{ gpus, cards, slots, socket int } // gpus has a bit for each
	var groups []group
	socketOf, seen := map[int]int{}, 0
	for socket, part := range strings.Split(text, "|") {
		for one := range strings.SplitSeq(part, ";") {
			gpus, cards, slots, err := readSwitch(one, len(n.GPUs))
			if err == nil && gpus&seen != 0 {
				err = fmt.Errorf("%q has a GPU that another switch has", strings.TrimSpace(one))
			}
			if err != nil {
				return t.fault("gpu_cards", err)
			}
			seen |= gpus
			groups = append(groups, group{gpus, cards, slots, socket})
			for i := range n.GPUs {
				if gpus&(1<<i) != 0 {
					socketOf[i] = socket
				}
			}
		}
	}
	for _, g := range groups {
		for range g.cards {
			nic := alloc.NIC{Name: "card" + strconv.Itoa(len(n.NICs)), Slots: g.slots}
			for i := range n.GPUs {
				near := alloc.RelationSystem
				if at, placed := socketOf[i]; placed && at == g.socket {
					near = alloc.RelationNUMA
				}
				if g.gpus&(1<<i) != 0 {
					near = alloc.RelationSwitch
				}
				nic.Near = append(nic.Near, near)
			}
			n.NICs = append(n.NICs, nic)
		}
	}
	return nil
}

// readSwitch reads one switch. gpus has a bit for each of its GPUs.
func readSwitch(text string, count int) (gpus, cards, slots int, err error) {
	text = strings.TrimSpace(text)
	wrong := func(what string) (int, int, int, error) {
		return 0, 0, 0, fmt.Errorf("%q is no switch such as 0,1:2: %s", text, what)
	}
	list, number, ok := strings.Cut(text, ":")
	if !ok {
		return wrong("it has no number of cards")
	}
	for name := range strings.SplitSeq(list, ",") {
		i, err := strconv.Atoi(strings.TrimSpace(name))
		if err != nil || i < 0 || i >= count || gpus&(1<<i) != 0 {
			return wrong(fmt.Sprintf("%q is not one of GPUs 0 to %d, or is there twice", name, count-1))
		}
		gpus |= 1 << i
	}
	number, share, shared := strings.Cut(number, "x")
	slots = cardSlots
	if shared {
		if slots, err = strconv.Atoi(share); err != nil || slots < 1 || slots > mostCardSlots {
			return wrong(fmt.Sprintf("1 to %d pods share a card", mostCardSlots))
		}
	}
	if cards, err = strconv.Atoi(number); err != nil || cards < 0 || cards > mostCards {
		return wrong(fmt.Sprintf("a switch has 0 to %d cards", mostCards))
	}
	return gpus, cards, slots, nil
}
