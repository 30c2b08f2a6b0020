package dialect

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// sameHost is the constraint of a claim for several GPUs that nodes reach through the network.
const sameHost = resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeHost)

// CheckReached returns what is wrong with a claim for GPUs that nodes reach through the network: all of its GPUs are of one host,
// because a program has one connection to what calls the driver for it.
func CheckReached(spec *resourcev1.ResourceClaimSpec) error {
	count, reached, local := int64(0), "", ""
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		var classes []string
		most := int64(1)
		if r.Exactly != nil {
			classes, most = []string{r.Exactly.DeviceClassName}, max(1, r.Exactly.Count)
		}
		for k := range r.FirstAvailable {
			classes, most = append(classes, r.FirstAvailable[k].DeviceClassName), max(most, r.FirstAvailable[k].Count)
		}
		count += most
		for _, class := range classes {
			if class == v1alpha1.ClassRemote {
				reached = r.Name
			} else {
				local = r.Name
			}
		}
	}
	switch {
	case reached == "" || count <= 1:
		return nil
	case local != "":
		return fmt.Errorf("request %s is of class %s and request %s is not: GPUs of another host need a claim of their own", reached, v1alpha1.ClassRemote, local)
	}
	for i := range spec.Devices.Constraints {
		c := &spec.Devices.Constraints[i]
		if c.MatchAttribute != nil && *c.MatchAttribute == sameHost && covers(c.Requests, spec) {
			return nil
		}
	}
	return fmt.Errorf("%d GPUs of class %s: they must be of one host: add a constraint with matchAttribute %s for all requests", count, v1alpha1.ClassRemote, sameHost)
}

// covers reports whether a constraint is for all requests of a claim.
func covers(requests []string, spec *resourcev1.ResourceClaimSpec) bool {
	named := map[string]bool{}
	for _, name := range requests {
		named[name] = true
	}
	for i := range spec.Devices.Requests {
		if len(requests) > 0 && !named[spec.Devices.Requests[i].Name] {
			return false
		}
	}
	return true
}
