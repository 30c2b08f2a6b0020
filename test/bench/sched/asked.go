package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// askedRate is how quickly pods are placed that ask for GPUs as users write it.
const askedRate = "sched.webhook_pods_per_s"

// askingPods ask in their limits. The webhook gives them to Divvy's scheduler.
func askingPods(name string, limits map[corev1.ResourceName]string) (kind, error) {
	k := kind{name: name, limits: corev1.ResourceList{}}
	for resourceName, amount := range limits {
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return k, fmt.Errorf("read what pod %s asks for: %w", name, err)
		}
		k.limits[resourceName] = quantity
	}
	return k, nil
}

// measureAsked compares pods that pass through the webhook with plain pods of Kubernetes' scheduler.
func measureAsked(ctx context.Context, o options) (rows []measurement.Row, err error) {
	nodes := o.NodesOr(stockNodes)
	b, err := openOurs(ctx, o, nodes, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if _, err := b.startWebhook(ctx, "{plain: {}}\nscheduler: {users: ['"+plane.User+"']}"); err != nil {
		return nil, err
	}
	shares, err := askingPods("asked", smallShare)
	if err != nil {
		return nil, err
	}
	kinds := []kind{shares, plainPods}
	if err := b.warm(ctx, kinds...); err != nil {
		return nil, err
	}
	var placed, plain, ratios []float64
	for run := range b.Rounds() {
		var took [2]outcome
		for at := range kinds {
			which := (run + at) % len(kinds)
			if took[which], err = b.placed(ctx, kinds[which], b.Few(placedRound), roundLimit); err != nil {
				return nil, err
			}
		}
		placed, plain = append(placed, took[0].rate()), append(plain, took[1].rate())
		ratios = append(ratios, took[0].rate()/took[1].rate())
	}
	on := fmt.Sprintf("%d nodes", nodes)
	return []measurement.Row{
		target.More(askedRate, on+", of plain pods' rate", "", 0, ratios, "the webhook's reviews take the same two processors"),
		target.More(askedRate, on+", pods that ask in their limits", "pods/s", 0, placed, ""),
		target.More(askedRate, on+", plain pods of Kubernetes' scheduler", "pods/s", 0, plain, ""),
	}, nil
}
