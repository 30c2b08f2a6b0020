package dra

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Suspender takes tenancies off their GPUs by orders of the cluster's scheduler, and brings them back.
type Suspender interface {
	// Suspend returns nil when a tenancy's GPUs are free of it. It may be called again for one that leaves or has left.
	Suspend(ctx context.Context, key string, o agent.Order) error
	// Resume returns nil when a tenancy is on its GPUs.
	Resume(ctx context.Context, key string) error
	// Ordered has the orders that hold, by key.
	Ordered() map[string]agent.Order
	// Changed is closed at the next change of anything.
	Changed() <-chan struct{}
}

const (
	// orderPause and orderPauseMost are between two tries of what did not succeed.
	orderPause     = time.Second
	orderPauseMost = 30 * time.Second
)

// orders carries out what the scheduler writes on claims of this node. One goroutine tends a claim while there is something to do:
// it compares the order, the agent's record and what was answered, and remembers nothing beside them.
type orders struct {
	*driver
	suspender Suspender
	written   writtenOrders
	pause     time.Duration
	running   sync.WaitGroup

	mu sync.Mutex
	// begin has a claim tended, nil while none may be; early are claims of which was told before it is known what is ordered.
	begin  func(id claimID, changed chan struct{})
	early  map[types.UID]claimID
	tended map[types.UID]chan struct{} // has room for one: something about the claim has changed
}

// claimID names a claim.
type claimID struct {
	namespace, name string
	uid             types.UID
}

func idOf(claim *resourcev1.ResourceClaim) claimID {
	return claimID{claim.Namespace, claim.Name, claim.UID}
}

// run tends claims until ctx is done.
func (o *orders) run(ctx context.Context) {
	o.running.Go(func() { o.written.run(ctx) })
	defer o.running.Wait()
	if !o.written.wait(ctx) {
		return
	}
	o.open(func(id claimID, changed chan struct{}) {
		o.running.Go(func() { o.tend(ctx, id, changed) })
	})
	// Orders that went while no agent was here.
	ordered := o.suspender.Ordered()
	for _, t := range o.tenants.Tenancies() {
		if _, is := ordered[t.Key]; is {
			uid, _ := claimOf(t.Key)
			o.notice(claimID{t.Namespace, t.Claim, uid})
		}
	}
	<-ctx.Done()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin = nil // before it is waited for those that are tended
}

// open has claims tended from now on, and those of which was told already.
func (o *orders) open(begin func(id claimID, changed chan struct{})) {
	o.mu.Lock()
	o.begin = begin
	early := o.early
	o.early = nil
	o.mu.Unlock()
	for _, id := range early {
		o.notice(id)
	}
}

// saw looks at a claim that was read or prepared: its order may have had nobody to carry it out, or its end nobody to answer it.
func (o *orders) saw(claim *resourcev1.ResourceClaim) {
	if o == nil {
		return
	}
	if _, ordered := claim.Annotations[v1alpha1.SuspendAnnotation]; ordered || isAway(answerOf(claim, o.node)) {
		o.notice(idOf(claim))
	}
}

// notice has somebody tend a claim, as soon as it is known what is ordered.
func (o *orders) notice(id claimID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if changed, is := o.tended[id.uid]; is {
		select {
		case changed <- struct{}{}:
		default:
		}
		return
	}
	if o.begin == nil {
		if o.early != nil {
			o.early[id.uid] = id
		}
		return
	}
	changed := make(chan struct{}, 1)
	o.tended[id.uid] = changed
	o.begin(id, changed)
}

// tend carries out what is ordered of a claim until nothing is ordered or left to answer.
func (o *orders) tend(ctx context.Context, id claimID, changed chan struct{}) {
	pause := o.pause
	for ctx.Err() == nil {
		order := o.written.of(id)
		news, err := o.whileOrdered(ctx, id, order, changed, func(ctx context.Context) error { return o.settle(ctx, id, order) })
		var again <-chan time.Time
		switch {
		case !o.written.of(id).same(order), err == nil && news:
			continue
		case err != nil:
			o.log.WarnContext(ctx, "cannot carry out an order of the scheduler yet", "claim", id.namespace+"/"+id.name, "uid", id.uid, "error", oneLine(err))
			again = time.After(pause)
			pause = min(2*pause, orderPauseMost)
		case order.none() && o.leave(id, changed):
			return
		default:
			pause = o.pause
		}
		o.await(ctx, id, order, changed, again)
	}
}

// leave ends the tending of a claim, unless something has changed.
func (o *orders) leave(id claimID, changed <-chan struct{}) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(changed) > 0 {
		return false
	}
	delete(o.tended, id.uid)
	return true
}

// whileOrdered does something until it has ended or something else is ordered, and reports whether the claim has changed meanwhile.
func (o *orders) whileOrdered(ctx context.Context, id claimID, order standing, changed <-chan struct{}, do func(ctx context.Context) error) (news bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		for o.written.of(id).same(order) {
			select {
			case <-changed:
				news = true
			case <-ended:
				return
			}
		}
	})
	err = do(ctx)
	close(ended)
	watching.Wait()
	return news, err
}

// await returns when there may be something to do: something about the claim has changed, the agent does not do any more what is
// ordered, or it is time to try again.
func (o *orders) await(ctx context.Context, id claimID, order standing, changed <-chan struct{}, again <-chan time.Time) {
	for {
		moved := o.suspender.Changed()
		if again == nil && !order.none() && o.strays(id, order) || !o.written.of(id).same(order) {
			return
		}
		select {
		case <-moved:
			continue
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
		return
	}
}

// strays reports whether a claim that was answered to be off its GPUs is not, as far as the agent knows.
func (o *orders) strays(id claimID, order standing) bool {
	said := answerOf(o.written.claim(id), o.node)
	if !isAway(said) || said.ObservedGeneration != order.Order {
		return false
	}
	ordered := o.suspender.Ordered()
	for _, t := range o.tenanciesOf(id.uid) {
		if ordered[t.Key].Number != order.Order {
			return true
		}
	}
	return false
}

// settle brings a claim's shares where an order wants them, on their GPUs without one, and answers.
func (o *orders) settle(ctx context.Context, id claimID, order standing) error {
	switch {
	case order.err != nil:
		return order.err
	case order.none():
		return o.bringBack(ctx, id)
	}
	claim, tenancies := o.written.claim(id), o.tenanciesOf(id.uid)
	if len(tenancies) == 0 {
		return nil // it is prepared later, or never
	}
	if said := answerOf(claim, o.node); said != nil && said.ObservedGeneration == order.Order && said.Reason == v1alpha1.RefusedReason {
		return nil
	}
	refused := o.suspend(ctx, tenancies, agent.Order{Number: order.Order, Whom: order.Whom()})
	switch {
	case refused == nil:
		return o.answer(ctx, claim, order.Order, v1alpha1.SuspendedReason, "for "+order.Whom()+": its programs wait, and its memory is in the node's host memory")
	case !refuses(refused):
		return refused
	}
	o.log.WarnContext(ctx, "a share cannot be suspended", "claim", id.namespace+"/"+id.name, "uid", id.uid, "for", order.Whom(), "error", oneLine(refused))
	if err := o.resume(ctx, tenancies); err != nil {
		return err
	}
	return o.answer(ctx, claim, order.Order, v1alpha1.RefusedReason, note(oneLine(refused)))
}

// suspend takes all tenancies of a claim off their GPUs.
func (o *orders) suspend(ctx context.Context, tenancies []agent.Tenancy, order agent.Order) error {
	for _, t := range tenancies {
		if err := o.suspender.Suspend(ctx, t.Key, order); err != nil {
			return fmt.Errorf("suspend %s: %w", t.Name, err)
		}
	}
	return nil
}

// resume brings all tenancies of a claim to their GPUs. One that has ended is nowhere.
func (o *orders) resume(ctx context.Context, tenancies []agent.Tenancy) error {
	for _, t := range tenancies {
		if err := o.suspender.Resume(ctx, t.Key); err != nil && control.CodeOf(err) != control.CodeNotFound {
			return fmt.Errorf("resume %s: %w", t.Name, err)
		}
	}
	return nil
}

// bringBack brings the shares of a claim back that nobody orders to be away, and answers where that is not answered yet.
func (o *orders) bringBack(ctx context.Context, id claimID) error {
	tenancies, ordered := o.tenanciesOf(id.uid), o.suspender.Ordered()
	if len(tenancies) == 0 {
		return nil // what was said of it goes with its allocation, or is looked at when it is prepared
	}
	number := int64(0)
	for _, t := range tenancies {
		number = max(number, ordered[t.Key].Number)
	}
	claim, err := o.fresh(ctx, id)
	if err != nil && number == 0 {
		return err
	}
	if said := answerOf(claim, o.node); isAway(said) {
		number = max(number, said.ObservedGeneration)
	}
	if number == 0 {
		return nil
	}
	if err := errors.Join(o.resume(ctx, tenancies), err); err != nil {
		return err
	}
	return o.answer(ctx, claim, number, v1alpha1.ResumedReason, "it is on its GPUs again")
}

// refuses reports whether an error of the agent is about the share, and not about the moment: an agent that ends or cannot save
// has said nothing of the share.
func refuses(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	code := control.CodeOf(err)
	return code == control.CodeRefused || code == control.CodeInvalid
}
