package faults

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var audit = flag.String("audit", "", "file in which the API server is to note who changed pods and claims, to find the cause of a contradiction")

// auditPolicy has the API server note who changed pods and claims, and when, but not how.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
  resources: [{group: resource.k8s.io, resources: [resourceclaims, resourceclaims/status]}, {group: "", resources: [pods, pods/binding]}]
- level: None
`

// audited are the arguments of an API server that notes this, where that is asked for.
func audited(t *testing.T) []string {
	t.Helper()
	if *audit == "" {
		return nil
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-log-path=" + *audit, "--audit-policy-file=" + policy, "--audit-log-maxsize=10000"}
}
