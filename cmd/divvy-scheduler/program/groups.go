package program

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// followGroups has the engine hear of the objects that describe gangs.
func (c *core) followGroups(config *rest.Config) error {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client that reads PodGroups: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client that asks which PodGroups are served: %w", err)
	}
	c.engine.FollowGroups(c.ctx, served, objects, func(pods ...*corev1.Pod) { c.activate(pods...) })
	return nil
}
