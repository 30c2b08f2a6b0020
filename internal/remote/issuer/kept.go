package issuer

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Certified is what ends at some time.
type Certified interface{ NotAfter() time.Time }

// Kept is a certificate that is asked for again before it ends.
type Kept[C Certified] struct {
	ask   func(context.Context) (C, error)
	told  func(error)
	retry time.Duration

	mu    sync.Mutex
	last  C
	fault error
}

// retryPause is between two questions of which the first got no answer.
const retryPause = 10 * time.Second

// Keep asks for a certificate, and then keeps it until ctx is done: in the middle of its time it asks for the next one, and while
// it gets none it goes on with the last one. told hears of each question that failed after the first one. The error is that of the
// first question.
func Keep[C Certified](ctx context.Context, ask func(context.Context) (C, error), told func(error)) (*Kept[C], error) {
	first, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	k := &Kept[C]{ask: ask, told: told, retry: retryPause, last: first}
	go k.run(ctx)
	return k, nil
}

// Get is the certificate. Once it has ended without another one, the error says why there is none.
func (k *Kept[C]) Get() (C, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.last.NotAfter()) {
		var none C
		return none, fmt.Errorf("the certificate has ended, and there is no other: %w", k.fault)
	}
	return k.last, nil
}

func (k *Kept[C]) run(ctx context.Context) {
	pause := k.half()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		next, err := k.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		if k.fault = err; err == nil {
			k.last = next
		}
		k.mu.Unlock()
		pause = k.retry
		if err == nil {
			pause = k.half()
		} else {
			k.told(err)
		}
	}
}

// half is the time until the middle of what is left.
func (k *Kept[C]) half() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(time.Until(k.last.NotAfter())/2, k.retry)
}
