// Package takeover waits until a replica that begins to lead knows all that the one before it has written. Watches alone do not say
// that: those of a replica that follows may be behind by as long as they were interrupted, and a GPU that was given meanwhile looks
// free.
package takeover

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// lookAgain is the time between two looks whether watches have told of all, and listAgain between two questions what there is:
	// of what came and went while a watch was interrupted nobody is told.
	lookAgain = 10 * time.Millisecond
	listAgain = time.Second
)

// Gone are the objects of one kind of which watches told that they are gone, since the list was begun that is compared with. A list has
// them if they went after it was made, and in a busy cluster some always do. Anybody may call its methods.
type Gone struct {
	mutex sync.Mutex // locked before what the caller of CatchUp locks to compare
	uids  map[types.UID]bool
	lists bool
}

// Note takes in that an object is gone, before it is dropped from what is compared with a list.
func (g *Gone) Note(uid types.UID) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.lists {
		g.uids[uid] = true
	}
}

// begin forgets what is gone, and notes it from now on.
func (g *Gone) begin() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.uids, g.lists = map[types.UID]bool{}, true
}

func (g *Gone) end() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.uids, g.lists = nil, false
}

// Compare returns an object of which watches have not told what a list says, "" for none.
type Compare func(list *metav1.PartialObjectMetadataList, gone map[types.UID]bool) string

// Behind is [Compare] where what watches told is in a map, by namespace and name.
func Behind[T any](list *metav1.PartialObjectMetadataList, gone map[types.UID]bool, known map[string]T, revision func(T) string) string {
	there := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		key := item.Namespace + "/" + item.Name
		there[key] = true
		at, is := known[key]
		if !gone[item.UID] && (!is || Older(revision(at), item.ResourceVersion)) {
			return key
		}
	}
	for key, at := range known {
		if !there[key] && Older(revision(at), list.ResourceVersion) {
			return key
		}
	}
	return ""
}

// Older reports whether a revision is before another one. What is no revision is.
func Older(revision, than string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, than)
	return err != nil || order < 0
}

// CatchUp waits until watches have told of all that was written of objects before it was called. list asks the API server, and no
// cache. late is called when that takes longer than a second, with what is waited for; kind names the objects there. The error is the
// context's.
func (g *Gone) CatchUp(ctx context.Context, kind string, list func(context.Context) (*metav1.PartialObjectMetadataList, error), behind Compare, late func(why string)) error {
	defer g.end()
	for {
		g.begin()
		all, err := list(ctx)
		why := ""
		if err != nil {
			why = err.Error()
		}
		for end := time.Now().Add(listAgain); time.Now().Before(end); {
			if err == nil {
				if why = g.compare(all, behind); why == "" {
					return nil
				}
				why = fmt.Sprintf("%s %s has changed", kind, why)
			}
			timer := time.NewTimer(lookAgain)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
		late(why)
	}
}

func (g *Gone) compare(list *metav1.PartialObjectMetadataList, behind Compare) string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return behind(list, g.uids)
}
