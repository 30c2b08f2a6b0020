package host

import (
	"context"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// leftover is what is left of a command's share when its command has ended: the command is of its user, and may have killed or
// deceived its attendant. The agent knows the processes of a share, in whatever session they are, and ends them. Until the agent
// has the share no more, the book counts it.
type leftover struct {
	host  *Host
	entry *entry
	// mark and uid tell the share from others in the agent's lists.
	mark string
	uid  int
	// serving ends with the server.
	serving context.Context

	once sync.Once
	over chan struct{} // closed when nothing is left, or the server ends and does not wait for it any longer
}

const (
	// cleanTime is how long the agent may take to notice the end of a command whose attendant says that nothing is left, and
	// noticeTime that of one whose attendant says nothing.
	cleanTime  = time.Second
	noticeTime = 100 * time.Millisecond
	// tellTime is how long the end of a share may hold up what its client is told of its command.
	tellTime = 3 * time.Second
	// leaveTime is how long a server that ends waits until the agent has ended a share.
	leaveTime = 12 * time.Second
	// askTime bounds a question to the agent, which ends a share within 30 seconds, however many processes it has.
	askTime = 35 * time.Second
	// firstPause and lastPause are between two questions to the agent, the first and the longest.
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// end begins to end what is left, and returns when it has ended, or soon. Clean says that nothing should be left.
func (l *leftover) end(clean bool) {
	l.begin(clean)
	select {
	case <-l.over:
	case <-time.After(tellTime):
	}
}

// await returns when nothing is left, or soon, because the client may have to be told why its command was refused. Where the server
// ends it waits as long as it may.
func (l *leftover) await() {
	l.end(false)
	if l.serving.Err() != nil {
		<-l.over
	}
}

func (l *leftover) begin(clean bool) {
	l.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(l.serving))
		stop := context.AfterFunc(l.serving, func() { time.AfterFunc(leaveTime, cancel) })
		go func() {
			defer close(l.over)
			defer cancel()
			defer stop()
			if l.endAll(ctx, clean) {
				l.host.book.release(l.entry)
			}
		}()
	})
}

// endAll has the agent end what is left, until nothing is, which it reports.
func (l *leftover) endAll(ctx context.Context, clean bool) bool {
	kill := time.Now().Add(noticeTime)
	if clean {
		kill = time.Now().Add(cleanTime)
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ids, err := l.ids(ctx)
		if err == nil && len(ids) == 0 {
			return true
		}
		if !time.Now().Before(kill) {
			for _, id := range ids {
				l.stop(ctx, id)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// ids are those of the shares that are left.
func (l *leftover) ids(ctx context.Context) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	list, err := l.host.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range list.Tenants {
		if t.Remote != nil && t.Remote.Mark == l.mark && t.UID == l.uid {
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}

// stop has the agent end a share. Whether it has, the next list tells.
func (l *leftover) stop(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client, err := l.host.reach(ctx)
	if err == nil {
		err = client.Stop(ctx, control.StopParams{Tenant: id})
	}
	if err != nil {
		l.host.options.Log.WarnContext(ctx, "cannot end what is left of a command's share", "share", id, "error", err)
	}
}
