package explanation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Gang is the state of a pod's gang.
type Gang struct {
	// Name is with its namespace.
	Name string `json:"name"`
	// Size is how many members there are to be, 0 where nobody says. Minimum is how many must be placed together.
	Size    int `json:"size,omitempty"`
	Minimum int `json:"minimum"`
	// Topology is how nodes keep the gang together: LABEL=required,LABEL=preferred.
	Topology string `json:"topology,omitempty"`
	// Bound are members with a node, Waiting those to place, Extra those above the gang's size.
	Bound   []Member `json:"bound,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
	Extra   []string `json:"extra,omitempty"`
	// Ended counts members that have ended well, Missing those that are not there yet and without which none is placed.
	Ended   int `json:"ended,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Fault is one line: why the gang cannot be placed whatever the cluster has.
	Fault string `json:"fault,omitempty"`
}

// Member is one that has a node.
type Member struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// mostPods is how many pods are read at once.
const mostPods = 500

// gang is the state of a pod's gang, nil for a pod of none. All members are of the pod's namespace.
func (r Reader) gang(ctx context.Context, pod *corev1.Pod) (*Gang, error) {
	described := &groups{ctx: ctx, client: r.Client, objects: r.Objects, known: map[groupKey]*gang.PodGroup{}}
	own, in, err := gang.Of(pod, described)
	if described.err != nil {
		return nil, described.err
	}
	if err != nil {
		g := &Gang{Fault: oneLine(err.Error())}
		if own.Name != "" {
			g.Name = own.String()
		}
		return g, nil
	}
	if !in {
		return nil, nil
	}
	known := &others{members: gang.NewMembers(described), nodes: map[string]string{}}
	if err := known.read(ctx, r.Client, pod.Namespace, own.String(), described); err != nil {
		return nil, err
	}
	if described.err != nil {
		return nil, described.err
	}
	state := known.members.State(own.String())
	g := &Gang{Name: own.String(), Size: own.Size, Minimum: own.Minimum, Topology: topology(own.Topology), Ended: known.ended}
	for _, key := range state.Bound {
		g.Bound = append(g.Bound, Member{Pod: podOf(key), Node: known.nodes[key]})
	}
	g.Waiting, g.Extra = podsOf(state.Waiting), podsOf(state.Extra)
	g.Missing = max(0, own.Minimum-known.ended-len(g.Bound)-len(g.Waiting)-len(g.Extra))
	if g.Missing == 0 {
		g.Fault = oneLine(state.Reason)
	}
	return g, nil
}

// others are the pods of a namespace, as members of gangs.
type others struct {
	members *gang.Members
	nodes   map[string]string
	// ended counts members of the gang that have ended well.
	ended int
}

func (o *others) read(ctx context.Context, client kubernetes.Interface, namespace, id string, described *groups) error {
	options := metav1.ListOptions{Limit: mostPods}
	for {
		list, err := client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("read the other pods of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			o.members.Set(one)
			o.nodes[one.Namespace+"/"+one.Name] = one.Spec.NodeName
			if g, in, err := gang.Of(one, described); err == nil && in && g.String() == id && one.Status.Phase == corev1.PodSucceeded {
				o.ended++
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

func podsOf(keys []string) []string {
	var pods []string
	for _, key := range keys {
		pods = append(pods, podOf(key))
	}
	return pods
}

// podOf is a pod's name without its namespace.
func podOf(key string) string {
	_, name, _ := strings.Cut(key, "/")
	return name
}

func topology(levels []gang.Level) string {
	var parts []string
	for _, l := range levels {
		how := "preferred"
		if l.Required {
			how = "required"
		}
		parts = append(parts, l.Label+"="+how)
	}
	return strings.Join(parts, ",")
}
