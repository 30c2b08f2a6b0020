package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// judge asks the API server who asks, and whether a claim is theirs to use.
type judge struct {
	client kubernetes.Interface
	// agents is the user of the agents' service account.
	agents string
}

// nodeExtra is what the API server says of a token that is bound to a pod.
const nodeExtra = "authentication.kubernetes.io/node-name"

// node is the node whose agent has a token. What is wrong with the token is ErrRefused.
func (j *judge) node(ctx context.Context, token string) (string, error) {
	if token == "" {
		return "", fmt.Errorf("%w: there is no token", ErrRefused)
	}
	review, err := j.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("ask the API server about a token: %w", err)
	case !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, Audience):
		return "", fmt.Errorf("%w: the API server does not know the token", ErrRefused)
	case review.Status.User.Username != j.agents:
		return "", fmt.Errorf("%w: the token is of %s, and agents are %s", ErrRefused, review.Status.User.Username, j.agents)
	}
	if nodes := review.Status.User.Extra[nodeExtra]; len(nodes) == 1 && nodes[0] != "" {
		return nodes[0], nil
	}
	return "", fmt.Errorf("%w: the token is bound to no node", ErrRefused)
}

// hosts are those whose GPUs a claim has, if a pod of the node uses it.
func (j *judge) hosts(ctx context.Context, c Claim, node string) ([]string, error) {
	if len(validation.IsDNS1123Label(c.Namespace))+len(validation.IsDNS1123Subdomain(c.Name)) > 0 {
		return nil, fmt.Errorf("%w: no claim can be named %.80q in namespace %.80q", ErrRefused, c.Name, c.Namespace)
	}
	claim, err := j.client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && claim.UID != c.UID:
		return nil, fmt.Errorf("%w: there is no claim %s/%s with UID %s", ErrRefused, c.Namespace, c.Name, c.UID)
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	hosts := HostsOf(claim)
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%w: claim %s/%s has no GPU of another host", ErrRefused, c.Namespace, c.Name)
	}
	for _, user := range claim.Status.ReservedFor {
		runs, err := j.runs(ctx, c.Namespace, user, node)
		if err != nil {
			return nil, err
		}
		if runs {
			return hosts, nil
		}
	}
	return nil, fmt.Errorf("%w: claim %s/%s is reserved for no pod that runs on node %s", ErrRefused, c.Namespace, c.Name, node)
}

// runs reports whether who uses a claim is a pod that runs on a node.
func (j *judge) runs(ctx context.Context, namespace string, user resourcev1.ResourceClaimConsumerReference, node string) (bool, error) {
	if user.APIGroup != "" || user.Resource != "pods" {
		return false, nil
	}
	pod, err := j.client.CoreV1().Pods(namespace).Get(ctx, user.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read pod %s/%s: %w", namespace, user.Name, err)
	}
	return pod.UID == user.UID && pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed, nil
}

// address is where a host publishes that it is reached, "" if it publishes no GPU. The admission policy of the chart lets only that
// node's agent write it. Two hosts cannot have one: a certificate for it would pass for the other's.
func (j *judge) address(ctx context.Context, host string) (string, error) {
	all, err := j.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, v1alpha1.Driver).String(),
	})
	if err != nil {
		return "", fmt.Errorf("read where hosts are reached: %w", err)
	}
	own, others := "", map[string]string{}
	for i := range all.Items {
		name, ok := v1alpha1.HostOfPool(all.Items[i].Spec.Pool.Name)
		if !ok {
			continue
		}
		for _, d := range all.Items[i].Spec.Devices {
			at, err := netip.ParseAddrPort(ptr.Deref(d.Attributes[v1alpha1.AttributeAddress].StringValue, ""))
			switch {
			case err != nil:
			case name == host:
				own = at.Addr().String()
			default:
				others[at.Addr().String()] = name
			}
		}
	}
	if other, taken := others[own]; taken && own != "" {
		return "", fmt.Errorf("%w: hosts %s and %s both publish address %s", ErrRefused, host, other, own)
	}
	return own, nil
}

// HostsOf are the hosts of a claim's GPUs that nodes reach through the network.
func HostsOf(claim *resourcev1.ResourceClaim) []string {
	var hosts []string
	if claim.Status.Allocation == nil {
		return nil
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if host, ok := v1alpha1.HostOfPool(r.Pool); ok && r.Driver == v1alpha1.Driver && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// refused reports whether who asked is to blame.
func refused(err error) bool { return errors.Is(err, ErrRefused) }
