// Package lease lets one of several replicas write to the API server: the one that holds a lease, and only as long as no other can have
// it. Who has lost it does not get it back: what another one wrote meanwhile may not be known here yet.
package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLease marks writes of a replica that may not lead any more.
var ErrLease = errors.New("lease was not renewed in time, so another replica may lead")

// ErrAgain marks a lease that another replica had since this one got it.
var ErrAgain = errors.New("lease was another replica's in between")

// ErrOthers marks a lease that is to be given up and is another replica's by now.
var ErrOthers = errors.New("lease is another replica's")

// ErrClient marks a client whose requests cannot be guarded.
var ErrClient = errors.New("client is none of HTTP")

// Lock is the lock of a leader election. It knows since when at least nobody else can have it. Anybody may call its methods.
type Lock struct {
	resourcelock.Interface
	// limit is how long after a renewal this replica writes. Others take the lease after a longer time.
	limit time.Duration
	// now is a clock that goes on while this process, or the whole machine, is stopped.
	now func() time.Duration
	// renewed is that clock's time before the last renewal that was answered, 0 without one.
	renewed atomic.Int64
	// led is set once the lease was got; term counts who had it until then. The goroutine of the election alone has both.
	led  bool
	term int
	// others tells that somebody else had it when it was read last. The goroutine of the election alone has it.
	others bool
	// way is how long a request may be on its way to the API server, by what others wait after limit.
	way time.Duration
	// flight is held for reading by requests that write, unanswered is when the last one ended without an answer.
	flight     sync.RWMutex
	unanswered atomic.Int64
}

// New guards a lock by the times of its election: how long the others leave a lease alone, and how long who holds it tries to renew it.
func New(lock resourcelock.Interface, duration, deadline time.Duration) *Lock {
	return &Lock{Interface: lock, limit: deadline, way: duration - deadline, now: bootTime}
}

// lost is when a lease was renewed that another one has: long ago. Requests on their way are not sent either.
const lost = 1

// bootTime is the time since the machine began, with that in which it was suspended.
func bootTime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Duration(1<<63 - 1) // without a clock no lease is held
	}
	return time.Duration(now.Nano())
}

// Get implements resourcelock.Interface. A replica that has led and sees the lease in other hands writes nothing any more, however
// late it renewed it last: who made the lease free before its time, the other one begins at once.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.others = record.HolderIdentity != "" && record.HolderIdentity != l.Identity()
		if l.led && (l.others || record.LeaderTransitions != l.term) {
			l.renewed.Store(lost)
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.led {
		return ErrAgain // somebody has deleted it
	}
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *Lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		l.renewed.Store(0) // it is given up, and another may have it before the answer comes
		if l.others {
			// The election gives up what it takes for its own, though another one took it while this process was stopped. That one
			// would go on writing beside the next that takes the free lease.
			return ErrOthers
		}
		if err := l.settle(ctx); err != nil {
			return err // the others take it in time
		}
		return write(ctx, record)
	}
	if l.led && record.LeaderTransitions != l.term {
		l.renewed.Store(lost)
		return ErrAgain // the election takes a lease that is free again, whoever had it meanwhile
	}
	begun := l.now() // the others count from a later time
	if err := write(ctx, record); err != nil {
		return err
	}
	l.led, l.term = true, record.LeaderTransitions
	l.renewed.Store(int64(begun))
	return nil
}

// settle waits until nothing that was written is on its way any more: who takes the lease that is given up begins at once.
func (l *Lock) settle(ctx context.Context) error {
	answered := make(chan struct{})
	go func() {
		l.flight.Lock()
		defer l.flight.Unlock()
		close(answered)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		return fmt.Errorf("wait for answers before the lease is given up: %w", ctx.Err())
	}
	last := time.Duration(l.unanswered.Load())
	if last == 0 {
		return nil
	}
	timer := time.NewTimer(l.way - (l.now() - last))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for what may be on its way before the lease is given up: %w", ctx.Err())
	}
}

// Held says why this replica may not write, nil if it may.
func (l *Lock) Held() error {
	renewed := time.Duration(l.renewed.Load())
	if renewed == 0 {
		return ErrLease
	}
	if age := l.now() - renewed; age > l.limit {
		return fmt.Errorf("%w: %v ago", ErrLease, age.Round(time.Millisecond))
	}
	return nil
}

// spent says why nothing more may leave this process, nil as long as it may lead or never led. Who has led and cannot any more ends.
func (l *Lock) spent() error {
	if l.renewed.Load() == 0 {
		return nil
	}
	return l.Held()
}

// Guard has a client of a configuration write only while the lease is held. That is checked for each request, after it waited for its
// turn, and again when its bytes are sent, because a process can be stopped in between, and a connection sends a request again by
// itself. All groups of a client send their requests through one HTTP client, which gets connections of its own.
func (l *Lock) Guard(client kubernetes.Interface, config *rest.Config) error {
	sender, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || sender.Client == nil || sender.Client == http.DefaultClient {
		return ErrClient
	}
	own := rest.CopyConfig(config)
	own.Dial = l.dial
	transport, err := rest.TransportFor(own)
	if err != nil {
		return fmt.Errorf("make the connections of who writes: %w", err)
	}
	sender.Client.Transport = leased{transport, l}
	return nil
}

// dialer is that of Kubernetes' clients.
var dialer = net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}

func (l *Lock) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return wire{conn, l}, nil
}

// wire is a connection that sends nothing once the lease is spent.
type wire struct {
	net.Conn
	lease *Lock
}

// Write implements net.Conn.
func (w wire) Write(bytes []byte) (int, error) {
	if err := w.lease.spent(); err != nil {
		return 0, err
	}
	return w.Conn.Write(bytes)
}

// leased sends requests that write only while the lease is held.
type leased struct {
	http.RoundTripper
	lease *Lock
}

// RoundTrip implements http.RoundTripper.
func (t leased) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return t.RoundTripper.RoundTrip(request)
	}
	t.lease.flight.RLock()
	defer t.lease.flight.RUnlock()
	if err := t.lease.Held(); err != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, err
	}
	answer, err := t.RoundTripper.RoundTrip(request)
	if err != nil { // it may be done nevertheless, later
		t.lease.unanswered.Store(int64(t.lease.now()))
	}
	return answer, err
}

// WrappedRoundTripper lets Kubernetes' libraries find what is inside.
func (t leased) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
