package scheduler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// firstPause and longestPause are the times between two tries of a write. Each pause is twice the one before.
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
)

// repeat tries something until it is done. The error is the context's. (wait.Backoff ends once it has reached its cap.)
func repeat(ctx context.Context, try func() (done bool)) error {
	for pause := firstPause; !try(); pause = min(2*pause, longestPause) {
		timer := time.NewTimer(wait.Jitter(pause, 0.2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}
