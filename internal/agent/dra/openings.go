package dra

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
)

// opened is a claim with admin access.
type opened struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	// Requests are the UUIDs of the GPUs of each request.
	Requests map[string][]string `json:"requests"`
}

func (o *opened) name() string { return o.Namespace + "/" + o.Claim }

// openings are the claims with admin access that are prepared. They have a checkpoint of their own, beside the
// agent's: they are nobody's shares, and an agent of an earlier version does not know them.
type openings struct {
	mu   sync.Mutex
	file *checkpoint.File[[]opened]
	all  map[types.UID]opened
}

// newOpenings reads what an earlier agent has opened. What cannot be read is set aside: the specifications of these
// claims go, their containers run on, and start again when the kubelet asks again.
func newOpenings(path string) (*openings, error) {
	o := &openings{file: checkpoint.NewFile[[]opened](path, "admin-access", 1), all: map[types.UID]opened{}}
	state, err := o.file.Load()
	if err != nil {
		aside, asideErr := o.file.SetAside()
		if asideErr != nil {
			return o, fmt.Errorf("%w: %w", err, asideErr)
		}
		return o, fmt.Errorf("%w: it is set aside as %s", err, aside)
	}
	for _, one := range state {
		o.all[one.UID] = one
	}
	return o, nil
}

// put remembers a claim, also after a restart.
func (o *openings) put(one opened) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, had := o.all[one.UID]
	o.all[one.UID] = one
	err := o.save()
	switch {
	case err != nil && had:
		o.all[one.UID] = before
	case err != nil:
		delete(o.all, one.UID)
	}
	return err
}

// remove forgets a claim.
func (o *openings) remove(uid types.UID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, had := o.all[uid]
	if !had {
		return nil
	}
	delete(o.all, uid)
	err := o.save()
	if err != nil {
		o.all[uid] = before
	}
	return err
}

// save writes the checkpoint, which is there while there are any. o.mu is held.
func (o *openings) save() error {
	if len(o.all) == 0 {
		return o.file.Remove()
	}
	return o.file.Save(slices.SortedFunc(maps.Values(o.all), inOrder))
}

func (o *openings) get(uid types.UID) (one opened, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok = o.all[uid]
	return one, ok
}

// list returns all in the order of their UIDs.
func (o *openings) list() []opened {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.all), inOrder)
}

func inOrder(a, b opened) int { return cmp.Compare(a.UID, b.UID) }
