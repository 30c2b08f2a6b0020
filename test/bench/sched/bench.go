package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// bench is a cluster whose nodes are objects alone.
type bench struct {
	options
	*plane.Plane

	client    kubernetes.Interface
	inventory inventory
	nodes     int
	rounds    int
}

// open starts a control plane with nodes, device classes, a namespace, and a scheduler, and without slices.
func open(ctx context.Context, o options, nodes int) (*bench, error) {
	b, err := openIdle(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	err = b.makeNodes(ctx)
	if err == nil {
		err = b.StartManager(ctx, "resourceclaim-controller")
	}
	if err == nil {
		err = b.StartScheduler(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// openIdle starts a control plane in which nothing acts: an API with device classes and a namespace.
func openIdle(ctx context.Context, o options, nodes int) (*bench, error) {
	components, err := plane.Components(o.root)
	if err != nil {
		return nil, err
	}
	gpus, err := readInventory(o.root)
	if err != nil {
		return nil, err
	}
	p, err := plane.Start(ctx, plane.Options{Components: components, Log: o.Say})
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, Plane: p, client: p.Client(), inventory: gpus, nodes: nodes}
	if err := errors.Join(b.makeNamespace(ctx, namespace), b.makeClasses(ctx)); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return b, nil
}

func (b *bench) makeNamespace(ctx context.Context, name string) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}

func (b *bench) makeClasses(ctx context.Context) error {
	classes, err := readClasses(b.root)
	if err != nil {
		return err
	}
	for _, class := range append(classes, otherClass()) {
		if _, err := b.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make device class %s: %w", class.Name, err)
		}
	}
	return nil
}

func (b *bench) makeNodes(ctx context.Context) error {
	err := each(ctx, b.nodes, func(ctx context.Context, i int) error {
		_, err := b.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	b.Say("made %d nodes", b.nodes)
	return nil
}

// publish publishes what the agents of all nodes would.
func (b *bench) publish(ctx context.Context) error {
	err := each(ctx, b.nodes, func(ctx context.Context, i int) error {
		all, err := b.inventory.slicesOf(i)
		for _, slice := range all {
			if err == nil {
				_, err = b.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("publish slices: %w", err)
	}
	return nil
}

// publishOther publishes the other driver's devices on all nodes.
func (b *bench) publishOther(ctx context.Context) error {
	err := each(ctx, b.nodes, func(ctx context.Context, i int) error {
		_, err := b.client.ResourceV1().ResourceSlices().Create(ctx, otherSliceOf(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("publish the other driver's slices: %w", err)
	}
	return nil
}

// withdraw removes the slices of a driver.
func (b *bench) withdraw(ctx context.Context, driver string) error {
	selected := metav1.ListOptions{LabelSelector: labels.Set{driverLabel: driver}.String()}
	if err := b.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		return fmt.Errorf("remove the slices of %s: %w", driver, err)
	}
	return nil
}

// prepare makes the template of a kind where it is not there yet.
func (b *bench) prepare(ctx context.Context, k kind) error {
	if k.template == nil {
		return nil
	}
	_, err := b.client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, k.template, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make a claim template: %w", err)
	}
	return nil
}

// clear removes all pods and claims and waits until they are gone: every round begins alike.
func (b *bench) clear(ctx context.Context) error {
	now := int64(0)
	pods, claims := b.client.CoreV1().Pods(namespace), b.client.ResourceV1().ResourceClaims(namespace)
	err := b.vanish(ctx, "pods", func() error {
		return pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	}, func() (int, error) {
		list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	})
	if err != nil {
		return err
	}
	// Only now: a claim that goes while its pod waits is made again.
	return b.vanish(ctx, "claims", func() error {
		if err := b.unprotect(ctx); err != nil {
			return err
		}
		return claims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}, func() (int, error) {
		list, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	})
}

// unprotect takes the finalizers off all claims: the controller manager at its default rate would take minutes.
func (b *bench) unprotect(ctx context.Context) error {
	claims := b.client.ResourceV1().ResourceClaims(namespace)
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return each(ctx, len(list.Items), func(ctx context.Context, i int) error {
		if len(list.Items[i].Finalizers) == 0 {
			return nil
		}
		_, err := claims.Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// vanish removes objects until there are none: one that was made late was not seen by the first removal.
func (b *bench) vanish(ctx context.Context, what string, remove func() error, left func() (int, error)) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for looks := 0; ; looks++ {
		if looks%10 == 0 {
			if err := remove(); err != nil {
				return fmt.Errorf("remove %s: %w", what, err)
			}
		}
		n, err := left()
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the %s are gone: %w", what, context.Cause(ctx))
		}
		if err := b.Alive(); err != nil {
			return err
		}
	}
}

// slices are all that is published.
func (b *bench) slices(ctx context.Context) ([]resourcev1.ResourceSlice, error) {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the slices: %w", err)
	}
	return list.Items, nil
}
