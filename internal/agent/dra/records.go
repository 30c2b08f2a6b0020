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

func (o opened) name() string   { return o.Namespace + "/" + o.Claim }
func (o opened) uid() types.UID { return o.UID }

// record is what is remembered of a claim.
type record interface{ uid() types.UID }

// records are claims that are prepared and that are nobody's shares. They have a checkpoint of their own, beside the
// agent's, which an agent of an earlier version does not know.
type records[T record] struct {
	mu   sync.Mutex
	file *checkpoint.File[[]T]
	all  map[types.UID]T
}

// newRecords reads what an earlier agent has remembered. What cannot be read is set aside: the specifications of these
// claims go, their containers run on, and start again when the kubelet asks again.
func newRecords[T record](path, kind string) (*records[T], error) {
	o := &records[T]{file: checkpoint.NewFile[[]T](path, kind, 1), all: map[types.UID]T{}}
	state, err := o.file.Load()
	if err != nil {
		aside, asideErr := o.file.SetAside()
		if asideErr != nil {
			return o, fmt.Errorf("%w: %w", err, asideErr)
		}
		return o, fmt.Errorf("%w: it is set aside as %s", err, aside)
	}
	for _, one := range state {
		o.all[one.uid()] = one
	}
	return o, nil
}

// put remembers a claim, also after a restart.
func (o *records[T]) put(one T) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, had := o.all[one.uid()]
	o.all[one.uid()] = one
	err := o.save()
	switch {
	case err != nil && had:
		o.all[one.uid()] = before
	case err != nil:
		delete(o.all, one.uid())
	}
	return err
}

// remove forgets a claim.
func (o *records[T]) remove(uid types.UID) error {
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
func (o *records[T]) save() error {
	if len(o.all) == 0 {
		return o.file.Remove()
	}
	return o.file.Save(slices.SortedFunc(maps.Values(o.all), inOrder[T]))
}

func (o *records[T]) get(uid types.UID) (one T, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok = o.all[uid]
	return one, ok
}

// list returns all in the order of their UIDs.
func (o *records[T]) list() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.all), inOrder[T])
}

func inOrder[T record](a, b T) int { return cmp.Compare(a.uid(), b.uid()) }
