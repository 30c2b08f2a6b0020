package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	watchapi "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// remotePool writes the slice of the GPUs that other nodes reach. The helper library cannot: it names the node in whatever a
// node's agent publishes, and the kubelet would delete it with the node's own. Nobody deletes this one but its agent, and the
// controller when the host is gone. It belongs to its device class, so that it goes with Divvy.
type remotePool struct {
	node, name string
	client     kubernetes.Interface
	log        *slog.Logger
	failed     func()
	retry      time.Duration

	mu      sync.Mutex
	known   bool // what is wanted
	want    *resourcev1.ResourceSliceSpec
	changed chan struct{}
}

func newRemotePool(node string, client kubernetes.Interface, log *slog.Logger) *remotePool {
	return &remotePool{node: node, name: v1alpha1.RemoteSlice(node), client: client, log: log, failed: func() {}, retry: pause, changed: make(chan struct{})}
}

// set says what is to be published, nil for nothing. Before the first call whatever is published stays.
func (p *remotePool) set(want *resourcev1.ResourceSliceSpec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known && apiequality.Semantic.DeepEqual(p.want, want) {
		return
	}
	p.known, p.want = true, want
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *remotePool) get() (want *resourcev1.ResourceSliceSpec, known bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want, p.known, p.changed
}

// run keeps the slice as it is wanted until ctx is done. It follows that one object while there is one.
func (p *remotePool) run(ctx context.Context) error {
	said := ""
	for ctx.Err() == nil {
		want, known, changed := p.get()
		if !known {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := p.keep(ctx, want, changed)
		if err == nil || ctx.Err() != nil {
			said = ""
			continue
		}
		p.failed()
		if text := err.Error(); text != said {
			p.log.WarnContext(ctx, "cannot publish the GPUs that other nodes reach, and will try again", "error", err)
			said = text
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-time.After(p.retry):
		}
	}
	return nil
}

// keep writes what is wanted, and returns when something else is or the object has changed.
func (p *remotePool) keep(ctx context.Context, want *resourcev1.ResourceSliceSpec, changed <-chan struct{}) error {
	written, err := p.write(ctx, want)
	if err != nil {
		return err
	}
	if written == nil {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return nil
	}
	watch, err := p.client.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.name).String(), ResourceVersion: written.ResourceVersion,
	})
	if err != nil {
		return fmt.Errorf("follow slice %s: %w", p.name, err)
	}
	defer watch.Stop()
	p.await(ctx, watch.ResultChan(), written, changed)
	return nil
}

// await returns when the object is not as it was written, or something else is wanted.
func (p *remotePool) await(ctx context.Context, events <-chan watchapi.Event, written *resourcev1.ResourceSlice, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
			return
		case <-ctx.Done():
			return
		case event, ok := <-events:
			if ok && event.Type != watchapi.Deleted && apiequality.Semantic.DeepEqual(event.Object, written) {
				continue // a watch may begin with what there is
			}
			if !ok || event.Type == watchapi.Error {
				select { // an API server that ends each watch at once is not asked without pause
				case <-ctx.Done():
				case <-changed:
				case <-time.After(p.retry):
				}
			}
			return
		}
	}
}

// write makes the slice what is wanted, and returns it as it is then, nil for none.
func (p *remotePool) write(ctx context.Context, want *resourcev1.ResourceSliceSpec) (*resourcev1.ResourceSlice, error) {
	all := p.client.ResourceV1().ResourceSlices()
	now, err := all.Get(ctx, p.name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return nil, fmt.Errorf("read slice %s: %w", p.name, err)
	case missing && want == nil:
		return nil, nil
	case want == nil:
		err := all.Delete(ctx, p.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("remove slice %s: %w", p.name, err)
		}
		p.log.InfoContext(ctx, "other nodes reach no GPU of this one any more")
		return nil, nil
	}
	owner, err := p.owner(ctx)
	if err != nil {
		return nil, err
	}
	if missing {
		made, err := all.Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: p.name, OwnerReferences: owner}, Spec: *want}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("make slice %s: %w", p.name, err)
		}
		p.log.InfoContext(ctx, "other nodes reach GPUs of this one", "gpus", len(want.Devices))
		return made, nil
	}
	next := now.DeepCopy()
	next.OwnerReferences, next.Spec = owner, *remoteNext(&now.Spec, want)
	if apiequality.Semantic.DeepEqual(now, next) {
		return now, nil
	}
	next.Spec.Pool.Generation = now.Spec.Pool.Generation + 1
	if next, err = all.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("change slice %s: %w", p.name, err)
	}
	return next, nil
}

// owner is the device class by which claims ask for such GPUs.
func (p *remotePool) owner(ctx context.Context) ([]metav1.OwnerReference, error) {
	class, err := p.client.ResourceV1().DeviceClasses().Get(ctx, v1alpha1.ClassRemote, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read device class %s, by which pods ask for these GPUs: %w", v1alpha1.ClassRemote, err)
	}
	return []metav1.OwnerReference{{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceClass", Name: class.Name, UID: class.UID}}, nil
}

// remoteNext is what is wanted with what others have said of the devices: since when a taint is there, which the API server adds,
// and that the host was away, which the controller says and takes back.
func remoteNext(now, want *resourcev1.ResourceSliceSpec) *resourcev1.ResourceSliceSpec {
	next := want.DeepCopy()
	next.Pool.Generation = now.Pool.Generation
	var away []resourcev1.DeviceTaint
	before := map[string][]resourcev1.DeviceTaint{}
	for i := range now.Devices {
		d := &now.Devices[i]
		before[d.Name] = d.Taints
		for _, taint := range d.Taints {
			if taint.Key == v1alpha1.HostTaint && len(away) == 0 {
				away = append(away, taint)
			}
		}
	}
	for i := range next.Devices {
		d := &next.Devices[i]
		for k := range d.Taints {
			at := slices.IndexFunc(before[d.Name], func(t resourcev1.DeviceTaint) bool {
				return t.Key == d.Taints[k].Key && t.Value == d.Taints[k].Value && t.Effect == d.Taints[k].Effect
			})
			if at >= 0 {
				d.Taints[k].TimeAdded = before[d.Name][at].TimeAdded
			}
		}
		d.Taints = append(d.Taints, away...)
	}
	return next
}

// errNoAddress is returned until the node's own address is known.
var errNoAddress = errors.New("the node has no address of type InternalIP: give --pool-address")

// addressOf is where others reach a node whose agent was told no address.
func addressOf(node *corev1.Node, port uint16) (netip.AddrPort, error) {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			return netip.AddrPortFrom(ip, port), nil
		}
	}
	return netip.AddrPort{}, errNoAddress
}

// isRemote reports whether a GPU is one that other nodes reach.
func isRemote(g pool.GPU) bool { return g.Form == pool.Remote }
