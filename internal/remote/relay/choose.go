package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Choice is where a share is to be taken, or why nowhere.
type Choice struct {
	// At is the position of the candidate, -1 where the request fits on no host now.
	At int
	// Wait is the position of the host on which the request lacks least and may fit later, -1 if on none.
	Wait int
	// Later is true where the request would fit on some host beside less than what is held there now.
	Later bool
	// Words are why hosts do not serve, by their positions. A host that serves has none.
	Words map[int]string
}

// Choose finds the host for a request, by the search of an agent over all GPUs of all hosts; hosts in gone are left out. It
// is pure.
func Choose(candidates []Candidate, gone map[int]string, r v1alpha1.ShareRequest) Choice {
	c := Choice{At: -1, Wait: -1, Words: map[int]string{}}
	request := requestOf(r)
	var open []int
	for i, o := range candidates {
		switch {
		case gone[i] != "":
			c.Words[i] = gone[i]
		case o.Inventory == nil:
			c.Words[i] = "it did not tell what it has"
			if o.Err != nil {
				c.Words[i] = o.Err.Error()
			}
		default:
			open = append(open, i)
		}
	}
	least := uint64(0)
	waits := func(at int, lacks uint64) {
		if c.Later = true; c.Wait < 0 || lacks < least {
			c.Wait, least = at, lacks
		}
	}
	for len(open) > 0 {
		at, assigned, err := search(candidates, open, request)
		if err != nil {
			break
		}
		text, lacks := beyond(candidates[at].Inventory.Left, assigned.Shares)
		if text == "" {
			c.At = at
			return c
		}
		c.Words[at] = text
		waits(at, lacks)
		open = slices.DeleteFunc(open, func(i int) bool { return i == at })
	}
	for _, i := range open {
		err := alone(candidates[i].Inventory.GPUs, request)
		if err == nil { // the others' descriptions contradict themselves
			c.At = i
			return c
		}
		c.Words[i] = strings.ReplaceAll(err.Error(), alloc.ErrRequest.Error()+": ", "")
		if alloc.Waits(err) {
			waits(i, lack(err))
		}
	}
	return c
}

// requestOf is a request as the allocator reads it.
func requestOf(r v1alpha1.ShareRequest) alloc.Request {
	r.Default()
	asked := alloc.Request{
		Count: r.GPUs, Memory: r.Memory, Cores: r.Guaranteed(r.Cores), Overcommit: r.Overcommit, OvercommitCores: r.Overcommit,
	}
	if r.Backend != v1alpha1.BackendAuto {
		asked.Form = string(r.Backend.Form())
	}
	return asked
}

// search looks for the best of some hosts. All GPUs of a request are of one.
func search(candidates []Candidate, open []int, r alloc.Request) (int, alloc.Assignment, error) {
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		return -1, alloc.Assignment{}, err
	}
	nodes := make([]alloc.Node, 0, len(open))
	for _, i := range open {
		nodes = append(nodes, alloc.Node{Name: candidates[i].Host.Name, GPUs: slices.Clone(candidates[i].Inventory.GPUs)})
	}
	inventory, err := alloc.NewInventory(nodes, policy)
	if err != nil {
		return -1, alloc.Assignment{}, err
	}
	a, err := alloc.Search(inventory, r)
	if err != nil {
		return -1, a, err
	}
	return open[a.Node], a, nil
}

// alone says why a request does not fit on one host.
func alone(gpus []alloc.GPU, r alloc.Request) error {
	if len(gpus) == 0 {
		return errors.New("it has no GPU for this client")
	}
	inventory, err := alloc.Host(slices.Clone(gpus))
	if err != nil {
		return fmt.Errorf("what it says of its GPUs makes no sense: %w", err)
	}
	_, err = alloc.Search(inventory, r)
	return err
}

// lack is how much a request lacks where that is least, in thousandths of what it needs.
func lack(err error) uint64 {
	var refusal *alloc.Refusal
	if !errors.As(err, &refusal) || len(refusal.Misses) == 0 {
		return 1000
	}
	part := func(m alloc.Miss) uint64 { return thousandths(m.Free, m.Need) }
	return part(slices.MinFunc(refusal.Misses, func(a, b alloc.Miss) int { return cmp.Compare(part(a), part(b)) }))
}

// thousandths is how much of a need is lacking.
func thousandths(free, need uint64) uint64 {
	return 1000 - min(1000, min(free, need)*1000/max(1, need))
}

// beyond says that shares are more than a host's file still grants the client, and how much they lack, "" if they are not. Whether
// the client could have them if it gave back what it has, the host knows.
func beyond(left wire.Left, shares []alloc.Share) (text string, lacks uint64) {
	var memory uint64
	cores := 0
	for _, s := range shares {
		memory += s.Limit
		cores += s.Cores
	}
	switch {
	case left.Shares != nil && *left.Shares < len(shares):
		return fmt.Sprintf("this client may have %s more there, and asks for %d", plural(*left.Shares, "share"), len(shares)), thousandths(uint64(max(0, *left.Shares)), uint64(len(shares)))
	case left.Memory != nil && memory > *left.Memory:
		return fmt.Sprintf("this client may have %s more there, and asks for %s", v1alpha1.FormatBytes(*left.Memory), v1alpha1.FormatBytes(memory)), thousandths(*left.Memory, memory)
	case left.Cores != nil && cores > *left.Cores:
		return fmt.Sprintf("this client may have %s more there, and asks for %d", plural(*left.Cores, "core"), cores), thousandths(uint64(max(0, *left.Cores)), uint64(cores))
	}
	return "", 0
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
