package explanation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// mostListed bounds how many objects one request returns.
const mostListed = 500

// requests is the [Source] that asks the API server.
type requests struct {
	client kubernetes.Interface
	// node is the one that is looked at, "" for all.
	node string
}

// Slices implements [Source].
func (r requests) Slices(ctx context.Context) (all []*resourcev1.ResourceSlice, err error) {
	ours := resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver
	if r.node == "" {
		return r.slices(ctx, ours)
	}
	if all, err = r.slices(ctx, ours+","+resourcev1.ResourceSliceSelectorNodeName+"="+r.node); err != nil {
		return nil, err
	}
	// The GPUs of the node that others reach bear no node's name.
	reached, err := r.slices(ctx, metav1.ObjectNameField+"="+v1alpha1.RemoteSlice(r.node))
	for _, one := range reached {
		if !slices.ContainsFunc(all, func(other *resourcev1.ResourceSlice) bool { return other.Name == one.Name }) {
			all = append(all, one)
		}
	}
	return all, err
}

func (r requests) slices(ctx context.Context, selector string) (all []*resourcev1.ResourceSlice, err error) {
	err = pages(selector, func(o metav1.ListOptions) (string, error) {
		list, err := r.client.ResourceV1().ResourceSlices().List(ctx, o)
		if err != nil {
			return "", err
		}
		all = appended(all, list.Items)
		return list.Continue, nil
	})
	return all, err
}

// Nodes implements [Source].
func (r requests) Nodes(ctx context.Context) (all []*corev1.Node, err error) {
	if r.node != "" {
		one, err := r.client.CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
		return []*corev1.Node{one}, err
	}
	err = pages("", func(o metav1.ListOptions) (string, error) {
		list, err := r.client.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return "", err
		}
		all = appended(all, list.Items)
		return list.Continue, nil
	})
	return all, err
}

// Claims implements [Source].
func (r requests) Claims(ctx context.Context, namespace string) (all []*resourcev1.ResourceClaim, err error) {
	err = pages("", func(o metav1.ListOptions) (string, error) {
		list, err := r.client.ResourceV1().ResourceClaims(namespace).List(ctx, o)
		if apierrors.IsNotFound(err) {
			return "", nil // Kubernetes 1.34 need not have them
		}
		if err != nil {
			return "", err
		}
		all = appended(all, list.Items)
		return list.Continue, nil
	})
	return all, err
}

// Pods implements [Source]: those of the node, if one is looked at.
func (r requests) Pods(ctx context.Context, namespace string) (all []*corev1.Pod, err error) {
	selector := PodsUnderWay
	if r.node != "" {
		selector += ",spec.nodeName=" + r.node
	}
	err = pages(selector, func(o metav1.ListOptions) (string, error) {
		list, err := r.client.CoreV1().Pods(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		all = appended(all, list.Items)
		return list.Continue, nil
	})
	return all, err
}

// Events implements [Source].
func (r requests) Events(ctx context.Context, namespace, reason string) (all []*eventsv1.Event, err error) {
	err = pages("reason="+reason, func(o metav1.ListOptions) (string, error) {
		list, err := r.client.EventsV1().Events(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		all = appended(all, list.Items)
		return list.Continue, nil
	})
	return all, err
}

func appended[T any](all []*T, items []T) []*T {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// pages reads a list in pieces. Read returns where the next one begins.
func pages(selector string, read func(metav1.ListOptions) (string, error)) error {
	o := metav1.ListOptions{FieldSelector: selector, Limit: mostListed}
	for {
		next, err := read(o)
		if err != nil || next == "" {
			return err
		}
		o.Continue = next
	}
}
