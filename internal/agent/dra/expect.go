package dra

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// pods that are not known yet are looked for this often.
const knownPause = 100 * time.Millisecond

// expectAtStart waits until the node's pods are known and has GPUs kept for those of them
// that have one as a whole by an earlier version's device and are not prepared. That is so
// where the agent was replaced between allocation and preparation, and after a start of the
// machine. Nothing is published before.
func (d *driver) expectAtStart(ctx context.Context, again time.Duration) {
	for said := ""; ; {
		pause := knownPause
		if d.pods.known() {
			err := d.expect(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			if pause = again; err.Error() != said {
				said = err.Error()
				d.log.WarnContext(ctx, "cannot read the claims of the node's pods, and will try again", "error", err)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// expect tells the agent which GPUs are allocated as a device of an earlier version to pods
// of the node, and not prepared. It asks for the claims that are not prepared.
func (d *driver) expect(ctx context.Context) error {
	d.expecting.Lock()
	defer d.expecting.Unlock()
	prepared := map[string]bool{}
	for _, t := range d.tenants.Tenancies() {
		prepared[t.Namespace+"/"+t.Claim] = true
	}
	expected := map[string]agent.Expected{}
	for _, pod := range d.pods.all() {
		claims, err := claimsOfPod(pod)
		if err != nil {
			return err
		}
		for _, name := range claims {
			if prepared[name] {
				continue
			}
			prepared[name] = true // it is read once, whoever else uses it
			if err := d.expectClaim(ctx, name, expected); err != nil {
				return err
			}
		}
	}
	d.tenants.Expect(expected)
	d.expects = len(expected) > 0
	return nil
}

func (d *driver) expectClaim(ctx context.Context, name string, expected map[string]agent.Expected) error {
	namespace, short, _ := strings.Cut(name, "/")
	claim, err := d.claim(ctx, namespace, short)
	if apierrors.IsNotFound(err) || err == nil && claim.Status.Allocation == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read claim %s: %w", name, err)
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		uuid, form, ok := pool.Parse(r.Device)
		if r.Driver == v1alpha1.Driver && !isAdmins(r) && r.Pool == d.node && ok && form == pool.Whole {
			expected[uuid] = agent.Expected{Claim: string(claim.UID), Name: name}
		}
	}
	return nil
}

// expectAgain looks whether what is expected still is, and asks nothing where nothing was.
func (d *driver) expectAgain(ctx context.Context) {
	d.expecting.Lock()
	some := d.expects
	d.expecting.Unlock()
	if !some || !d.pods.known() {
		return
	}
	if err := d.expect(ctx); err != nil {
		d.log.WarnContext(ctx, "cannot see whether GPUs are kept for claims that are gone", "error", err)
	}
}
