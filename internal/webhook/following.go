package webhook

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// following knows whether the API server tells of the objects of one kind as they change. A reflector tries again
// without end, and says nothing of an API server that is busy.
type following struct {
	now func() time.Time

	mu     sync.Mutex // guards what follows
	opened time.Time  // when the watch was opened that is open now; zero where none is
	fault  error      // of the last question, nil if it was answered
}

// since is when the API server began to tell of changes without a pause; it is zero while it does not.
func (f *following) since() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// trouble is why the last question was not answered, or nil.
func (f *following) trouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// asked notes how a question ended. A server that has no streamed lists refuses them, and is asked in the older way.
func (f *following) asked(options metav1.ListOptions, err error) {
	if options.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		err = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = err
}

// watch opens a watch and notes when it ends.
func (f *following) watch(ctx context.Context, options metav1.ListOptions, open func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	w, err := open(ctx, options)
	f.asked(options, err)
	if err != nil {
		return nil, err
	}
	f.note(f.now())
	return &followed{w, f}, nil
}

func (f *following) note(opened time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = opened
}

// followed is an open watch. A reflector stops every watch that it opened, also one that has ended.
type followed struct {
	watch.Interface
	by *following
}

// Stop implements [watch.Interface].
func (w *followed) Stop() {
	w.by.note(time.Time{})
	w.Interface.Stop()
}
