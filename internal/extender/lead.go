package extender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/divvy-gpu/divvy/internal/lease"
)

// ErrLeaseLost is returned when another replica has taken the lease, or is to have it.
var ErrLeaseLost = errors.New("the lease is lost")

// Election says how one replica is chosen.
type Election struct {
	// Leases asks for the lease: what else is asked must not hold it up.
	Leases coordination.LeasesGetter
	// Namespace and Name are those of the lease.
	Namespace, Name string
	// Identity names this replica. One with the same identity has ended.
	Identity string
	// Scheduler is the name of the lease of the schedulers that ask, in the same namespace, "" where they ask whichever replica
	// leads. Where it is given this replica leads while the scheduler does whose identity begins with Host.
	Scheduler, Host string
	// Duration is for how long others leave the lease alone, Deadline for how long it is tried to renew it, and Retry the time
	// between two tries.
	Duration, Deadline, Retry time.Duration
}

// Lock is the lock of the election, which also guards the client that writes.
func (e *Election) Lock() *lease.Lock {
	return lease.New(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace},
		Client:     e.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}, e.Duration, e.Deadline)
}

// lead waits for the lease, has the work done while this replica holds it, and returns once both have ended. It is held once.
func (e *Election) lead(ctx context.Context, lock *lease.Lock, log func(string, ...any), work func(context.Context) error) (worked error, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := e.await(ctx, log); err != nil {
		return nil, err
	}
	go func() {
		if e.follow(ctx, log) {
			stop()
		}
	}()
	var begun atomic.Bool
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.Duration, RenewDeadline: e.Deadline, RetryPeriod: e.Retry, ReleaseOnCancel: true, Name: e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if begun.Store(true); ctx.Err() == nil {
					log("holding the lease", "identity", e.Identity)
				}
				ended <- work(ctx)
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("compete for the lease: %w", err)
	}
	elector.Run(ctx)
	if begun.Load() {
		worked = <-ended
	}
	return worked, nil
}

// await waits until the scheduler beside this replica leads.
func (e *Election) await(ctx context.Context, log func(string, ...any)) error {
	if e.Scheduler == "" {
		return nil
	}
	for told := ""; ; {
		leads, why := e.beside(ctx)
		if leads {
			return nil
		}
		if why != told {
			log("following until the scheduler of this host leads", "because", why)
			told = why
		}
		if err := pause(ctx, e.Retry); err != nil {
			return err
		}
	}
}

// follow returns true once another scheduler leads than the one beside this replica, and false once the context ends.
func (e *Election) follow(ctx context.Context, log func(string, ...any)) bool {
	if e.Scheduler == "" {
		return false
	}
	for {
		if pause(ctx, e.Retry) != nil {
			return false
		}
		if leads, why := e.beside(ctx); !leads && why != "" {
			log("the scheduler of this host leads no more, and so this replica ends", "because", why)
			return true
		}
	}
}

// beside reports whether the scheduler beside this replica leads, and else why not, "" where nobody says so.
func (e *Election) beside(ctx context.Context) (leads bool, why string) {
	ctx, cancel := context.WithTimeout(ctx, e.Deadline)
	defer cancel()
	found, err := e.Leases.Leases(e.Namespace).Get(ctx, e.Scheduler, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, "lease " + e.Scheduler + " is not there yet"
	case err != nil:
		return false, ""
	case found.Spec.HolderIdentity == nil || *found.Spec.HolderIdentity == "":
		return false, "nobody holds lease " + e.Scheduler
	case !strings.HasPrefix(*found.Spec.HolderIdentity, e.Host+"_"):
		return false, "lease " + e.Scheduler + " is held by " + *found.Spec.HolderIdentity
	}
	return true, ""
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
