package daemon

import (
	"context"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// settle is how long an agent waits for more GPUs that were left out, once the driver has
// answered about one.
const settle = time.Minute

// again is an agent that starts again inside its process.
type again struct {
	hold  *os.File // keeps others from starting one meanwhile
	found []int    // GPUs that were left out, which it serves then
	rules *agentconfig.Config
}

// done lets others go on, and returns the GPUs that were found. Of nil it is none.
func (a *again) done() []int {
	if a == nil {
		return nil
	}
	a.hold.Close()
	return a.found
}

// noteLeftOut tells which GPUs are not served because the driver does not tell of them, and
// which are served again.
func (s *service) noteLeftOut(ctx context.Context, found []int) {
	silent, answered := s.library.LeftOut()
	silent = append(silent, answered...)
	refused := s.library.Refused()
	for _, gpu := range silent {
		s.options.Log.WarnContext(ctx, "a GPU is left out until the driver tells of it", "gpu", gpu, "error", refused[gpu])
	}
	s.agent.NoteLeftOut(silent, refused, found)
}

// takeUp ends the agent when the driver answers about GPUs that were left out, so that it
// starts again and serves them: which GPUs there are is settled at the start. Shares
// outlive it.
func (s *service) takeUp(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var since time.Time
	for {
		silent, answered := s.library.LeftOut()
		now := time.Now()
		if len(answered) > 0 && since.IsZero() {
			since = now
		}
		switch {
		case len(silent)+len(answered) == 0:
			return
		case len(answered) > 0 && (len(silent) == 0 || now.Sub(since) > settle):
			if s.startAgain(ctx, answered, "to serve GPUs that were left out") {
				return
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// startAgain ends the agent so that it starts again inside its process and serves more GPUs, those that were found among them. It
// reports whether it does.
func (s *service) startAgain(ctx context.Context, found []int, why string) bool {
	hold, err := s.options.Endpoint.HoldStart(ctx)
	if err != nil {
		s.options.Log.WarnContext(ctx, "cannot start again "+why, "gpus", found, "error", err)
		return false
	}
	s.options.Log.InfoContext(ctx, "starts again "+why, "gpus", found)
	s.again.Store(&again{hold, found, s.rules})
	s.end()
	return true
}
