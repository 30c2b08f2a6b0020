package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim reads a claim at the API server.
func (d *driver) claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	return d.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// startReading begins to read the pods for which a claim is reserved; what it
// returns waits for them.
func (d *driver) startReading(ctx context.Context, claim *resourcev1.ResourceClaim) func() ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		pods, err = d.podsOf(ctx, claim)
	}()
	return func() ([]*corev1.Pod, error) {
		<-done
		return pods, err
	}
}

// podsOf reads the pods for which a claim is reserved.
func (d *driver) podsOf(ctx context.Context, claim *resourcev1.ResourceClaim) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			continue
		}
		pod, err := d.podOf(ctx, claim, r)
		if err != nil {
			return pods, fmt.Errorf("read pod %s: %w", r.Name, err)
		}
		if pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// namesOf are the names of pods.
func namesOf(pods []*corev1.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

// divisible returns why a claim's requests cannot be divided by the containers of its pods, if so.
func divisible(requests []string, pods []*corev1.Pod) error {
	if len(pods) > 0 || len(requests) < 2 {
		return nil
	}
	return fault("no pod that it is reserved for can be read, so it is not known which container gets which request: give each request a claim of its own")
}

// newest and atHand are resource versions to read at: the latest, and any that the
// API server has in memory, which is much faster while many pods start.
const (
	newest = ""
	atHand = "0"
)

// podOf reads a pod for which a claim is reserved, and returns nil if the pod is
// gone. Once a pod names its claims, nothing that is read here changes any more, so
// an older version of the pod is good enough if it names them: first what the watch has,
// which costs no request.
func (d *driver) podOf(ctx context.Context, claim *resourcev1.ResourceClaim, r resourcev1.ResourceClaimConsumerReference) (*corev1.Pod, error) {
	if pod := d.pods.named(claim.Namespace, r.Name); pod != nil && pod.UID == r.UID {
		if uses, err := usesOf(pod, claim); err == nil && len(uses) > 0 {
			return pod, nil
		}
	}
	pod, err := d.pod(ctx, claim.Namespace, r.Name, atHand)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil && pod.UID == r.UID {
		if uses, err := usesOf(pod, claim); err == nil && len(uses) > 0 {
			return pod, nil
		}
	}
	pod, err = d.pod(ctx, claim.Namespace, r.Name, newest)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != r.UID {
		return nil, nil
	}
	return pod, err
}

func (d *driver) pod(ctx context.Context, namespace, name, version string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	return d.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: version})
}
