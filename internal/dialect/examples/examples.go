// Package examples holds pods of other systems' manuals, examples and tests, as what they ask, in our own words, and
// what their own systems do with them. [Example.Right] says whether a translation does the same.
//
// The pods are in the folder pods, a file for each system. A source names its repository, the commit and date that were
// read, the dialects that are turned on, and where it is said what its words mean. An example names its source and its
// path there, and what its containers ask; where it has none, there is one named main. Want says what becomes of it:
//
//	main: 2 share memory=40Gi cores=30 burst [selector] same attribute; scheduler default-scheduler
//	refused: a part of the reason
//	left alone
//
// Where there are queues, Divvy's scheduler runs, and want ends with the labels that the pod gets: "queue NAME", "quota QUOTA".
// A share of a part of a GPU is one of a GPU of 80 GiB. Why says how the outcome is known, where the source does not.
package examples

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/queue"
)

//go:embed pods/*.yaml
var pods embed.FS

// ErrExample marks a file, or an example in it, that cannot be read.
var ErrExample = errors.New("invalid example")

// Source is where examples come from.
type Source struct {
	Repository string `json:"repository"`
	// Read is the commit, or the version of the text, and its date.
	Read string `json:"read"`
	// Dialects are those that are turned on for its pods, as the configuration has them.
	Dialects string `json:"dialects"`
	// Known says where the system defines what its words mean.
	Known string `json:"known"`
}

// Container is one container of a pod.
type Container struct {
	Name       string            `json:"name"`
	Limits     map[string]amount `json:"limits,omitempty"`
	Requests   map[string]amount `json:"requests,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Claims     []string          `json:"claims,omitempty"`
	Privileged bool              `json:"privileged,omitempty"`
}

// Example is one pod.
type Example struct {
	Source string `json:"source"`
	Path   string `json:"path"`
	// Dialects replaces that of the source.
	Dialects  string `json:"dialects,omitempty"`
	Scheduler string `json:"scheduler,omitempty"`
	// Owner is the kind and the name of the workload that makes the pod, with a slash between them.
	Owner      string            `json:"owner,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Notes      map[string]string `json:"notes,omitempty"`
	Init       []Container       `json:"init,omitempty"`
	Containers []Container       `json:"containers,omitempty"`
	// Queues are those that there are, all of the pod's namespace, where Divvy's scheduler serves any.
	Queues []string `json:"queues,omitempty"`
	// Class is the pod's priority class, and Priority what the API server makes of it.
	Class    string `json:"class,omitempty"`
	Priority *int32 `json:"priority,omitempty"`
	Want     string `json:"want"`
	Why      string `json:"why,omitempty"`
}

// amount is a quantity, which YAML may have as a number.
type amount string

func (a *amount) UnmarshalJSON(text []byte) error {
	*a = amount(strings.Trim(string(text), `"`))
	return nil
}

// Load reads all examples, and their sources by name.
func Load() ([]Example, map[string]Source, error) {
	var all []Example
	sources := make(map[string]Source)
	files, err := fs.Glob(pods, "pods/*.yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("list the examples: %w", err)
	}
	for _, name := range files {
		text, err := pods.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read the examples: %w", err)
		}
		var file struct {
			Sources  map[string]Source `json:"sources"`
			Examples []Example         `json:"examples"`
		}
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", ErrExample, name, err)
		}
		for id, source := range file.Sources {
			sources[id] = source
		}
		for _, e := range file.Examples {
			source, ok := sources[e.Source]
			if !ok || e.Path == "" || e.Want == "" {
				return nil, nil, fmt.Errorf("%w: %s: %s %s names no source, no path or no outcome", ErrExample, name, e.Source, e.Path)
			}
			if e.Dialects == "" {
				e.Dialects = source.Dialects
			}
			all = append(all, e)
		}
	}
	return all, sources, nil
}

// Pod is what the API server would show the webhook.
func (e *Example) Pod() (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: e.Labels, Annotations: e.Notes},
		Spec:       corev1.PodSpec{SchedulerName: e.Scheduler, PriorityClassName: e.Class, Priority: e.Priority},
	}
	if kind, name, ok := strings.Cut(e.Owner, "/"); ok {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name}}
	}
	named := make(map[string]bool)
	read := func(containers []Container) ([]corev1.Container, error) {
		var made []corev1.Container
		for i := range containers {
			container, err := containers[i].container()
			if err != nil {
				return nil, err
			}
			for _, claim := range containers[i].Claims {
				if !named[claim] {
					named[claim] = true
					pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: &claim})
				}
			}
			made = append(made, container)
		}
		return made, nil
	}
	main := e.Containers
	if len(main) == 0 {
		main = []Container{{Name: "main"}}
	}
	var err error
	if pod.Spec.InitContainers, err = read(e.Init); err != nil {
		return nil, err
	}
	pod.Spec.Containers, err = read(main)
	return pod, err
}

func (c *Container) container() (corev1.Container, error) {
	made := corev1.Container{Name: c.Name}
	for _, list := range []struct {
		from map[string]amount
		to   *corev1.ResourceList
	}{{c.Limits, &made.Resources.Limits}, {c.Requests, &made.Resources.Requests}} {
		for name, text := range list.from {
			quantity, err := resource.ParseQuantity(string(text))
			if err != nil {
				return made, fmt.Errorf("%w: %s: %q: %w", ErrExample, name, text, err)
			}
			if *list.to == nil {
				*list.to = corev1.ResourceList{}
			}
			(*list.to)[corev1.ResourceName(name)] = quantity
		}
	}
	for name, value := range c.Env {
		made.Env = append(made.Env, corev1.EnvVar{Name: name, Value: value})
	}
	for _, name := range c.Claims {
		made.Resources.Claims = append(made.Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	if c.Privileged {
		made.SecurityContext = &corev1.SecurityContext{Privileged: &c.Privileged}
	}
	return made, nil
}

// tree is of the queues that there are.
func (e *Example) tree() *queue.Tree {
	var specs []queue.Spec
	for _, name := range e.Queues {
		specs = append(specs, queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"default"}}})
	}
	return queue.NewTree(specs)
}

// claimNames are names of claims, one after the other.
func claimNames() func() string {
	var n [v1alpha1.ClaimNameBytes]byte
	return func() string {
		n[0]++
		return v1alpha1.ClaimName(n)
	}
}

// Right translates the pod and reports whether the outcome is that which is wanted; got is the outcome.
func (e *Example) Right() (right bool, got string, err error) {
	pod, err := e.Pod()
	if err != nil {
		return false, "", err
	}
	config := "apiVersion: " + v1alpha1.APIVersion + "\nkind: WebhookConfig\ndialects: " + e.Dialects
	inventory := dialect.Inventory{Sizes: []uint64{80 << 30}}
	if len(e.Queues) > 0 {
		config += "\nscheduler: {users: [scheduler], queues: true}"
		inventory.Queues, inventory.Name = e.tree(), claimNames()
	}
	translator, err := dialect.NewTranslator([]byte(config))
	if err != nil {
		return false, "", fmt.Errorf("turn on the dialects of %s %s: %w", e.Source, e.Path, err)
	}
	made, err := translator.Translate(pod, inventory)
	if errors.Is(err, dialect.ErrRefused) {
		got = "refused: " + strings.TrimPrefix(err.Error(), dialect.ErrRefused.Error()+": ")
		part, refused := strings.CutPrefix(e.Want, "refused: ")
		return refused && strings.Contains(got, part), got, nil
	}
	if err != nil {
		return false, "", fmt.Errorf("translate %s %s: %w", e.Source, e.Path, err)
	}
	got, err = outcome(&made)
	return got == e.Want, got, err
}
