package program

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
)

// errLease marks writes of a scheduler that may not lead any more.
var errLease = errors.New("lease was not renewed in time, so another scheduler may lead")

// errClient marks a client of Kubernetes' scheduler that is not made as it was.
var errClient = errors.New("client of Kubernetes' scheduler is none of HTTP")

// lease is the lock of the leader election. It knows since when at least nobody else can have it. Anybody may call its
// methods.
type lease struct {
	resourcelock.Interface
	// limit is how long after a renewal this scheduler writes. Others take the lease after a longer time.
	limit time.Duration
	// now is a clock that goes on while this process, or the whole machine, is stopped.
	now func() time.Duration
	// renewed is that clock's time before the last renewal that was answered, 0 without one.
	renewed atomic.Int64
}

// bootTime is the time since the machine began, with that in which it was suspended.
func bootTime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Duration(1<<63 - 1) // without a clock no lease is held
	}
	return time.Duration(now.Nano())
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lease) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		l.renewed.Store(0) // it is given up, and another may have it before the answer comes
		return write(ctx, record)
	}
	begun := l.now() // the others count from a later time
	if err := write(ctx, record); err != nil {
		return err
	}
	l.renewed.Store(int64(begun))
	return nil
}

// held says why this scheduler may not write, nil if it may.
func (l *lease) held() error {
	renewed := time.Duration(l.renewed.Load())
	if renewed == 0 {
		return errLease
	}
	if age := l.now() - renewed; age > l.limit {
		return fmt.Errorf("%w: %v ago", errLease, age.Round(time.Millisecond))
	}
	return nil
}

// guard has the scheduler write only while it holds the lease. The check is the last thing before a request is sent, so that
// it holds also for what waited for its turn, and for what Kubernetes' own plugins write. Without an election nothing is checked.
func guard(config *schedulerconfig.CompletedConfig) error {
	election := config.LeaderElection
	if election == nil {
		return nil
	}
	election.Name = config.ComponentConfig.LeaderElection.ResourceName // of the figure of who leads
	l := &lease{Interface: election.Lock, limit: election.RenewDeadline, now: bootTime}
	election.Lock = l
	return l.guard(config.Client)
}

// guard has a client write only while the lease is held. All groups of a client send their requests through one HTTP client.
func (l *lease) guard(client kubernetes.Interface) error {
	sender, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || sender.Client == nil || sender.Client == http.DefaultClient {
		return errClient
	}
	sender.Client.Transport = leased{sender.Client.Transport, l}
	return nil
}

// leased sends requests that write only while the lease is held.
type leased struct {
	http.RoundTripper
	lease *lease
}

// RoundTrip implements http.RoundTripper.
func (t leased) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		if err := t.lease.held(); err != nil {
			if request.Body != nil {
				request.Body.Close()
			}
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(request)
}

// WrappedRoundTripper lets Kubernetes' libraries find what is inside.
func (t leased) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
