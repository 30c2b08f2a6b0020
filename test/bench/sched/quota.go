package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const (
	// foreignQuota is how many of five pods pass a quota for one that was written for another system's resource.
	foreignQuota = "cluster.quota"
	// quotaPods try, one after the other.
	quotaPods = 5
)

// foreign are the quotas, and what each of the pods asks.
var foreign = []struct {
	name, dialects string
	hard           corev1.ResourceList
	limits         corev1.ResourceList
}{
	{
		"requests.nvidia.com/gpu", "{hami: {}}",
		corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("1")},
		corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
	},
	{
		"limits.nvidia.com/gpumem", "{hami: {}}",
		corev1.ResourceList{"limits.nvidia.com/gpumem": resource.MustParse("3000")},
		corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "nvidia.com/gpumem": resource.MustParse("3000")},
	},
}

func measureQuota(ctx context.Context, o options) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, f := range foreign {
		passed, err := passing(ctx, o, f.dialects, f.hard, f.limits)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		rows = append(rows, target.Less(foreignQuota, f.name, "pods", 1, []float64{float64(passed)},
			fmt.Sprintf("of %d pods, each of which takes the whole quota; dialects %s", quotaPods, f.dialects)))
	}
	return rows, nil
}

// passing is how many pods with these limits a quota lets pass.
func passing(ctx context.Context, o options, dialects string, hard, limits corev1.ResourceList) (passed int, err error) {
	b, err := openIdle(ctx, o, 5)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.publish(ctx); err != nil {
		return 0, err
	}
	// The quota's own controller and that of claims work as in any cluster.
	if err := b.StartManager(ctx, "resourceclaim-controller,resourcequota-controller"); err != nil {
		return 0, err
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if _, err := b.client.CoreV1().ResourceQuotas(namespace).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("make a quota: %w", err)
	}
	if _, err := b.startWebhook(ctx, dialects); err != nil {
		return 0, err
	}
	var refusal error
	for i := range quotaPods {
		pod := podOf(kind{name: "quota"}, i)
		pod.Spec.Containers[0].Resources.Limits = limits
		_, err := b.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil {
			passed++
			continue
		}
		b.Say("pod %d: %v", i, err)
		refusal = err
	}
	if passed == 0 {
		return 0, fmt.Errorf("make pods: none passed: %w", refusal)
	}
	return passed, b.Process(plane.APIServer).Alive()
}
