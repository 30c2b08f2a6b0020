package agent

import "strings"

// podKeys begins the keys of tenancies that belong to a pod and not to a claim, whose
// keys begin with the claim's UID.
const podKeys = "pod/"

// PodKey is the key of the tenancy that a pod has for one of its shares.
func PodKey(podUID, share string) string { return podKeys + podUID + "/" + share }

// PodOfKey returns the UID of the pod to which a tenancy's key belongs; ok is false
// for the key of a claim.
func PodOfKey(key string) (podUID string, ok bool) {
	rest, ok := strings.CutPrefix(key, podKeys)
	if !ok {
		return "", false
	}
	podUID, _, ok = strings.Cut(rest, "/")
	return podUID, ok
}

// ShareOfKey is [PodOfKey] with the name of the pod's share.
func ShareOfKey(key string) (podUID, share string, ok bool) {
	rest, ok := strings.CutPrefix(key, podKeys)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// ofTenancy reports whether a tenant's id is that of a tenancy.
func ofTenancy(id string) bool { return strings.HasPrefix(id, tenancyPrefix) }
