package v1alpha1

import "strings"

// RemoteClient is the name by which a node shows that it may take the shares of a claim on other hosts: the common name of its
// certificate.
func RemoteClient(node, claim string) string { return node + "/" + claim }

// ParseRemoteClient returns node and claim of such a name; ok is false for any other.
func ParseRemoteClient(name string) (node, claim string, ok bool) {
	node, claim, ok = strings.Cut(name, "/")
	return node, claim, ok && node != "" && claim != "" && !strings.Contains(claim, "/")
}
