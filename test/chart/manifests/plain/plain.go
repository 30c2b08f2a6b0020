// Package plain knows which plain manifests there are and what is in each.
package plain

import (
	"bytes"
	"fmt"

	"github.com/divvy-gpu/divvy/test/chart/render"
)

// File is one file of plain manifests.
type File struct {
	Name string
	// For is said at the top of the file.
	For        string
	Kubernetes string
	// Values are the chart's that differ from its own.
	Values string
}

// Files are all of them.
var Files = []File{
	{Name: "divvy.yaml", For: "Kubernetes 1.36 and later", Kubernetes: "v1.36.0"},
	{Name: "divvy-with-scheduler.yaml", For: "Kubernetes 1.36 and later, with Divvy's scheduler", Kubernetes: "v1.36.0", Values: "scheduler: {enabled: true}"},
	{Name: "divvy-slots.yaml", For: "Kubernetes 1.32 to 1.35, with kube-scheduler v1.35.4; put the cluster's own version in its place", Kubernetes: "v1.35.4"},
}

const head = `# Divvy for %s. Rendered from deploy/chart by "make manifests"; change the chart instead.
apiVersion: v1
kind: Namespace
metadata:
  name: divvy-system
  labels:
    # The agent reaches into the host; nothing else in this namespace does.
    pod-security.kubernetes.io/enforce: privileged
`

// kept tells Helm alone that an object stays.
const kept = "  annotations:\n    helm.sh/resource-policy: keep\n"

// Render returns what the file should hold.
func (f File) Render(chart string) ([]byte, error) {
	documents, err := render.Chart(chart, render.Options{Namespace: "divvy-system", Kubernetes: f.Kubernetes, Values: f.Values})
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", f.Name, err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, head, f.For)
	for _, document := range documents {
		if document.IsHook() {
			continue
		}
		text.WriteString("---\n")
		text.Write(bytes.ReplaceAll(document.Text, []byte(kept), nil))
	}
	return text.Bytes(), nil
}
