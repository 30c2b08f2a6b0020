package web

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// mostNamespaces bounds of how many namespaces a reader's rights are asked for.
const mostNamespaces = 100

// rights are what a reader may see.
type rights struct {
	// Nodes is true for who may list nodes, All for who may list the pods of all namespaces.
	Nodes bool `json:"nodes,omitempty"`
	All   bool `json:"all,omitempty"`
	// Namespaces are those of which the reader may list the pods, in order, unless that is all.
	Namespaces []string `json:"namespaces,omitempty"`
	// More is true where there were too many namespaces to ask for each.
	More bool `json:"more,omitempty"`
}

// key tells readers apart who see different things.
func (r rights) key() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) //nolint:forbidigo // strings and booleans have a form
	}
	return string(text)
}

// sees reports whether what is in a namespace is shown.
func (r rights) sees(namespace string) bool {
	if r.All {
		return true
	}
	_, found := slices.BinarySearch(r.Namespaces, namespace)
	return found
}

// hidden says what is not shown, "" for nothing.
func (r rights) hidden() string {
	pods := fmt.Sprintf("shares and waiting pods of %d namespaces", len(r.Namespaces))
	switch len(r.Namespaces) {
	case 0:
		pods = "no shares and no waiting pods, because you may list pods in no namespace that has any"
	case 1:
		pods = "shares and waiting pods of namespace " + r.Namespaces[0]
	}
	text := ""
	switch {
	case r.Nodes && r.All:
		return ""
	case r.Nodes:
		text = "You see sums over all shares, and " + pods + "."
	case r.All:
		text = "You may not list nodes: you see the GPUs that have shares."
	case len(r.Namespaces) == 0:
		text = "You see nothing: you may list neither nodes nor pods where shares are."
	default:
		text = "You see " + pods + ". Of GPUs you see those of these shares, and sums over these alone, because you may not list nodes."
	}
	if r.More {
		text += fmt.Sprintf(" Your rights were looked up in %d namespaces alone, because more have shares.", mostNamespaces)
	}
	return text
}

// nobody is what a reader without a token is told.
const nobody = "Give a token of the cluster to see what you may list."

// shown is what a reader with rights sees of everything. Whoever may not list nodes learns nothing of what is others'.
func (r rights) shown(all *overview.Overview) *overview.Overview {
	o := overview.New(all.Time)
	o.Nodes, o.Hidden = nil, r.hidden()
	for i := range all.Nodes {
		n := overview.Node{Name: all.Nodes[i].Name}
		if r.Nodes {
			n.Notes = all.Nodes[i].Notes
		}
		for _, g := range all.Nodes[i].GPUs {
			g.Shares = r.of(g.Shares)
			if !r.Nodes {
				if len(g.Shares) == 0 {
					continue
				}
				g = alone(g)
			}
			n.GPUs = append(n.GPUs, g)
		}
		if r.Nodes || len(n.GPUs) > 0 {
			o.Nodes = append(o.Nodes, n)
		}
	}
	if r.Nodes && o.Nodes == nil {
		o.Nodes = []overview.Node{}
	}
	for _, w := range all.Waiting {
		switch {
		case r.sees(w.Namespace):
			o.Waiting = append(o.Waiting, w)
		case r.Nodes:
			o.WaitingUnseen++
		}
	}
	return o
}

func (r rights) of(all []overview.Share) []overview.Share {
	if r.All {
		return all
	}
	var seen []overview.Share
	for i := range all {
		if r.sees(all[i].Namespace) {
			seen = append(seen, all[i])
		}
	}
	return seen
}

// alone is a GPU with the sums of the shares that are shown.
func alone(g overview.GPU) overview.GPU {
	g.Count, g.Granted, g.Cores = len(g.Shares), 0, 0
	for i := range g.Shares {
		g.Granted, g.Cores = g.Granted+g.Shares[i].Memory, g.Cores+g.Shares[i].Cores
	}
	return g
}

// namespacesOf are those in which something is shared or waits, in order.
func namespacesOf(all *overview.Overview) []string {
	seen := map[string]bool{}
	for i := range all.Nodes {
		for k := range all.Nodes[i].GPUs {
			for j := range all.Nodes[i].GPUs[k].Shares {
				seen[all.Nodes[i].GPUs[k].Shares[j].Namespace] = true
			}
		}
	}
	for i := range all.Waiting {
		seen[all.Waiting[i].Namespace] = true
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
