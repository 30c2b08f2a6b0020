package dialect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// claim is one ResourceClaim of the pod, and the containers that use it.
type claim struct {
	request  Request // of the container that the claim is named after
	users    []ContainerRef
	name     string // in the pod
	template string
	made     string // name of the claim itself, where Divvy's scheduler makes it
}

func (p ContainerRef) compare(other ContainerRef) int {
	if p.Init != other.Init {
		if p.Init {
			return -1
		}
		return 1
	}
	return cmp.Compare(p.Index, other.Index)
}

// arrange gives every container a claim. An init container ends before the main containers begin, so it uses the claim
// of one of them if both want the same behaviour; that claim then has the larger of both sizes. A sidecar has a claim
// of its own. Requests are in the order of their containers, and so are the claims.
func arrange(pod *corev1.Pod, requests []Request) []claim {
	var claims []claim
	for _, r := range requests {
		if !r.Container.Init || r.Container.sidecar(pod) {
			claims = append(claims, claim{request: r, users: []ContainerRef{r.Container}})
		}
	}
	for _, r := range requests {
		if !r.Container.Init || r.Container.sidecar(pod) {
			continue
		}
		if i := lend(claims, r, pod); i >= 0 {
			claims[i].request, _ = claims[i].request.larger(r)
			claims[i].users = append(claims[i].users, r.Container)
		} else {
			claims = append(claims, claim{request: r, users: []ContainerRef{r.Container}})
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return a.request.Container.compare(b.request.Container) })
	for i := range claims {
		claims[i].name = nameClaim(pod, claims[:i], claims[i].request.Container.of(pod).Name)
	}
	return claims
}

// lend returns the index of a claim that an init container can use while the claim's owner does not run. It prefers a
// claim that is large enough already, then takes the first; -1 for none.
func lend(claims []claim, r Request, pod *corev1.Pod) int {
	found := -1
	for i, c := range claims {
		if owner := c.request.Container; owner.sidecar(pod) && owner.Index < r.Container.Index {
			continue // it runs already
		}
		grown, ok := c.request.larger(r)
		switch {
		case !ok:
		case grown.sameSize(c.request):
			return i
		case found < 0:
			found = i
		}
	}
	return found
}

// longestLabel is what Kubernetes allows for names of claims and templates here.
const longestLabel = 63

// nameClaim names a claim after its container. The name differs from the pod's own claims and from the claims before
// it.
func nameClaim(pod *corev1.Pod, before []claim, container string) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == name }) ||
			slices.ContainsFunc(before, func(c claim) bool { return c.name == name })
	}
	base := "divvy-" + container
	if len(base) > longestLabel-4 {
		sum := sha256.Sum256([]byte(container))
		base = "divvy-" + hex.EncodeToString(sum[:16])
	}
	name := base
	for n := 2; taken(name); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}
