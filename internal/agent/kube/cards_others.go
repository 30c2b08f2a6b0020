package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/rdma"
)

// Two drivers that publish one card give it twice, and neither knows of the other. So cards that nobody named are left to who
// publishes them too, as far as the cluster shows that.

// othersInterval is the time between two questions to the API server who else gives cards, and othersTime the longest answer.
const (
	othersInterval = time.Minute
	othersTime     = 5 * time.Second
)

// rdmaResources begins the names under which the device plugin for shared RDMA cards counts them, unless it is told another one. Of which
// cards they are, they do not tell.
const rdmaResources = "rdma/"

// others are who else gives the node's cards to pods.
type others struct {
	// resource is that of a device plugin, "" for none; drivers are those of claims, by what they say of their devices.
	resource string
	drivers  map[string]string
}

// othersOn finds them in what the cluster has of a node. It is pure.
func othersOn(node *corev1.Node, published []resourcev1.ResourceSlice) others {
	o := others{drivers: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(node.Status.Capacity)) {
		amount := node.Status.Capacity[name]
		if strings.HasPrefix(string(name), rdmaResources) && !amount.IsZero() {
			o.resource = string(name)
			break
		}
	}
	for i := range published {
		spec := &published[i].Spec
		if spec.Driver == v1alpha1.Driver || spec.NodeName == nil || *spec.NodeName != node.Name {
			continue
		}
		for k := range spec.Devices {
			for _, a := range spec.Devices[k].Attributes {
				if a.StringValue != nil {
					o.drivers[*a.StringValue] = max(o.drivers[*a.StringValue], spec.Driver)
				}
			}
		}
	}
	return o
}

// has is who else gives a card, "" for nobody: a driver that names its PCI function, its adapter or its network device.
func (o others) has(card *rdma.Card) string {
	if o.resource != "" {
		return "the node's resource " + o.resource + " of a device plugin"
	}
	names := []string{card.Name, card.Netdev()}
	if card.OnPCI && !card.Soft {
		names = append(names, card.PCI.Address.String())
	}
	for _, name := range names {
		if driver := o.drivers[name]; driver != "" && name != "" {
			return "the driver " + driver
		}
	}
	return ""
}

// leave divides cards into those that are published and those that are left to others.
func (o others) leave(cards []rdma.Card) (published []rdma.Card, left []rdma.Left) {
	for i := range cards {
		if who := o.has(&cards[i]); who != "" {
			left = append(left, rdma.Left{Name: cards[i].Name, Why: who + " gives it too: name it in nics to give it to containers all the same, or set nics to off"})
			continue
		}
		published = append(published, cards[i])
	}
	return published, left
}

// askOthers asks the API server who else gives the node's cards.
func askOthers(client kubernetes.Interface, name string) func(context.Context) (others, error) {
	return func(ctx context.Context) (others, error) {
		ctx, cancel := context.WithTimeout(ctx, othersTime)
		defer cancel()
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			node, err = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
		if err != nil {
			return others{}, fmt.Errorf("read which resources the node has: %w", err)
		}
		published, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			ResourceVersion: "0", FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, name).String(),
		})
		if err != nil {
			return others{}, fmt.Errorf("read what other drivers publish: %w", err)
		}
		return othersOn(node, published.Items), nil
	}
}
